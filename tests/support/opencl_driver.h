// An OpenCL driver under a test's control: it stands before the system's, counts what is called, and holds commands back until the
// test lets them go. One at a time; it goes when the devices that were opened under it have gone.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/opencl/discovery.h"
#include "base/os/os.h"

namespace evn::test {

template <>
struct Access<OpenClLibrary> {
  // While no thread calls OpenCL.
  static void set(const OpenClApi& api) { OpenClLibrary::api_ = api; }
};

class OpenClDriver {
 public:
  enum Call { kContext, kReleaseContext, kRead, kWrite, kCopy, kMap, kUnmap, kKernel, kCallCount };

  OpenClDriver() {
    std::string why;
    EXPECT_NE(opencl_api(&why), nullptr) << why;
    system_ = opencl();
    self_ = this;
    OpenClApi api = system_;
    api.create_context = [](auto... a) { return self_->count(kContext), system_.create_context(a...); };
    api.release_context = [](auto... a) {
      const cl_int code = system_.release_context(a...);
      self_->count(kReleaseContext);
      return code;
    };
    api.enqueue_read_buffer = [](cl_command_queue q, auto... a) {
      return self_->before(kRead, q), system_.enqueue_read_buffer(q, a...);
    };
    api.enqueue_write_buffer = [](cl_command_queue q, auto... a) {
      return self_->before(kWrite, q), system_.enqueue_write_buffer(q, a...);
    };
    api.enqueue_copy_buffer = [](cl_command_queue q, auto... a) {
      return self_->before(kCopy, q), system_.enqueue_copy_buffer(q, a...);
    };
    api.enqueue_map_buffer = [](cl_command_queue q, auto... a) {
      return self_->before(kMap, q), system_.enqueue_map_buffer(q, a...);
    };
    api.enqueue_unmap_mem_object = [](cl_command_queue q, auto... a) {
      return self_->before(kUnmap, q), system_.enqueue_unmap_mem_object(q, a...);
    };
    api.enqueue_nd_range_kernel = [](cl_command_queue q, auto... a) {
      return self_->before(kKernel, q), system_.enqueue_nd_range_kernel(q, a...);
    };
    api.finish = [](cl_command_queue q) { return self_->before_finish(), system_.finish(q); };
    Access<OpenClLibrary>::set(api);
  }
  ~OpenClDriver() {
    let_go();
    for (int i = 0; i < 60'000 && counts_[kReleaseContext] < counts_[kContext]; ++i) {  // some may go on threads of theirs
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(counts_[kReleaseContext], counts_[kContext]) << "a device that was opened under the driver is still open";
    Access<OpenClLibrary>::set(system_);
    self_ = nullptr;
  }
  OpenClDriver(const OpenClDriver&) = delete;
  OpenClDriver& operator=(const OpenClDriver&) = delete;

  int calls(Call call) const { return counts_[call]; }
  int transfers() const { return counts_[kRead] + counts_[kWrite] + counts_[kCopy]; }

  // From the next command on nothing is done on its queue. A thread that called this and then waits for the device is let go, and
  // counted: a test of who waits fails, and does not hang.
  void hold() {
    const std::lock_guard<std::mutex> lock(mutex_);
    holder_ = std::this_thread::get_id();
    hold_next_ = true;
  }
  // The same from the command after the next `kernels` kernels on.
  void hold_after(int kernels) {
    const std::lock_guard<std::mutex> lock(mutex_);
    holder_ = std::this_thread::get_id();
    hold_after_ = kernels;
  }
  bool holds() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return held_ != nullptr;
  }
  void let_go() {
    const std::lock_guard<std::mutex> lock(mutex_);
    let_go_locked();
  }
  // How often the thread that called `hold` waited for what was held.
  int waited_for_held() const { return waited_; }

 private:
  template <typename Function>
  static Function symbol(const char* name) {
    std::string why;
    static void* const library = os::open_library("libOpenCL.so.1", &why);
    return reinterpret_cast<Function>(os::find_symbol(library, name));
  }

  void count(Call call) { ++counts_[call]; }

  void before(Call call, cl_command_queue queue) {
    count(call);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (call == kKernel && hold_after_ >= 0 && hold_after_-- == 0) hold_next_ = true;
    if (!hold_next_ || held_ != nullptr) return;
    hold_next_ = false;
    cl_context context = nullptr;
    cl_int code = symbol<decltype(&::clGetCommandQueueInfo)>("clGetCommandQueueInfo")(queue, CL_QUEUE_CONTEXT, sizeof context,
                                                                                      &context, nullptr);
    EXPECT_EQ(code, CL_SUCCESS);
    held_ = symbol<decltype(&::clCreateUserEvent)>("clCreateUserEvent")(context, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    EXPECT_EQ(symbol<decltype(&::clEnqueueBarrierWithWaitList)>("clEnqueueBarrierWithWaitList")(queue, 1, &held_, nullptr),
              CL_SUCCESS);
  }

  void before_finish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_ == nullptr || std::this_thread::get_id() != holder_) return;
    ++waited_;
    let_go_locked();
  }

  void let_go_locked() {
    hold_next_ = false;
    hold_after_ = -1;
    if (held_ == nullptr) return;
    EXPECT_EQ(symbol<decltype(&::clSetUserEventStatus)>("clSetUserEventStatus")(held_, CL_COMPLETE), CL_SUCCESS);
    system_.release_event(held_);
    held_ = nullptr;
  }

  static inline OpenClDriver* self_ = nullptr;
  static inline OpenClApi system_{};
  std::array<std::atomic<int>, kCallCount> counts_{};
  std::atomic<int> waited_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::thread::id holder_;
  bool hold_next_ = false;
  int hold_after_ = -1;
  cl_event held_ = nullptr;
};

// Why there is no device; "" when there is one.
inline std::string missing_opencl() {
  std::string why;
  return find_opencl_devices(&why).empty() ? why : "";
}

// Skips a test on a machine without OpenCL, or fails it where EVN_REQUIRE_OPENCL=1 says that there must be one.
#define EVN_NEEDS_OPENCL()                                                                      \
  do {                                                                                          \
    const std::string why_ = ::evn::test::missing_opencl();                                     \
    const char* required_ = std::getenv("EVN_REQUIRE_OPENCL");                                  \
    if (!why_.empty() && required_ != nullptr && std::string(required_) == "1") FAIL() << why_; \
    if (!why_.empty()) GTEST_SKIP() << why_;                                                    \
  } while (0)

}  // namespace evn::test
