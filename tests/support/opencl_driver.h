// An OpenCL driver under a test's control: it stands before the system's, counts what is called, and holds commands back until the
// test lets them go. One at a time; it goes when the devices that were opened under it have gone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
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
  enum Call {
    kContext,
    kReleaseContext,
    kRead,
    kWrite,
    kCopy,
    kMap,
    kUnmap,
    kKernel,
    kFlush,
    kFinish,
    kWait,
    kCallback,
    kUserEvent,
    kSource,
    kBinary,
    kGetBinary,
    kIl,
    kCallCount
  };

  OpenClDriver() {
    std::string why;
    EXPECT_NE(opencl_api(&why), nullptr) << why;
    system_ = opencl();
    self_ = this;
    OpenClApi api = system_;
    api.create_context = [](auto... a) { return self_->count(kContext), system_.create_context(a...); };
    api.get_device_info = [](cl_device_id id, cl_device_info what, std::size_t size, void* value, std::size_t* size_ret) {
      constexpr char kIl[] = "SPIR-V_1.0";
      if (what == 0x105b && self_->takes_text_as_il_) {  // CL_DEVICE_IL_VERSION
        if (size_ret != nullptr) *size_ret = sizeof kIl;
        if (value != nullptr) std::memcpy(value, kIl, std::min(size, sizeof kIl));
        return cl_int{CL_SUCCESS};
      }
      const cl_int code = system_.get_device_info(id, what, size, value, size_ret);
      const cl_bool no = CL_FALSE;
      if (code == CL_SUCCESS && what == CL_DEVICE_HOST_UNIFIED_MEMORY && value != nullptr && self_->has_own_memory_)
        std::memcpy(value, &no, sizeof no);
      const cl_bitfield all_memory = 0xf;
      if (what == 0x1053 && value != nullptr && self_->shares_all_memory_)  // CL_DEVICE_SVM_CAPABILITIES
        return std::memcpy(value, &all_memory, sizeof all_memory), cl_int{CL_SUCCESS};
      if (code == CL_SUCCESS && what == CL_DEVICE_COMPILER_AVAILABLE && value != nullptr && self_->has_no_compiler_)
        std::memcpy(value, &no, sizeof no);
      return code;
    };
    api.create_buffer = [](cl_context context, cl_mem_flags flags, std::size_t size, void* host, cl_int* code) {
      const bool lies_well =
          reinterpret_cast<std::uintptr_t>(host) % self_->host_alignment_ == 0 && size % self_->host_multiple_ == 0;
      if ((flags & CL_MEM_USE_HOST_PTR) != 0 && !lies_well) flags ^= CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR;
      return system_.create_buffer(context, flags, size, host, code);
    };
    api.get_mem_object_info = [](cl_mem memory, cl_mem_info what, std::size_t size, void* value, std::size_t* size_ret) {
      const cl_bool yes = CL_TRUE;
      if (what == 0x1109 && self_->shares_all_memory_)  // CL_MEM_USES_SVM_POINTER
        return std::memcpy(value, &yes, sizeof yes), cl_int{CL_SUCCESS};
      return system_.get_mem_object_info(memory, what, size, value, size_ret);
    };
    api.create_program_with_source = [](auto... a) { return self_->count(kSource), system_.create_program_with_source(a...); };
    api.create_program_with_il = [](cl_context context, const void* il, std::size_t size, cl_int* code) {
      self_->count(kIl);
      if (!self_->takes_text_as_il_) return system_.create_program_with_il(context, il, size, code);
      const char* text = static_cast<const char*>(il);
      return system_.create_program_with_source(context, 1, &text, &size, code);
    };
    api.create_program_with_binary = [](auto... a) { return self_->count(kBinary), system_.create_program_with_binary(a...); };
    api.build_program = [](cl_program program, cl_uint count, const cl_device_id* devices, const char* options, auto... a) {
      self_->set_build_options(options);
      if (self_->build_code_ != CL_SUCCESS) return self_->build_code_.load();
      return system_.build_program(program, count, devices, options, a...);
    };
    api.get_program_build_info = [](cl_program program, cl_device_id device, cl_program_build_info what, std::size_t size,
                                    void* value, std::size_t* size_ret) {
      if (self_->build_code_ == CL_SUCCESS) return system_.get_program_build_info(program, device, what, size, value, size_ret);
      std::snprintf(static_cast<char*>(value), size, "%s", self_->build_log_.c_str());
      return cl_int{CL_SUCCESS};
    };
    api.get_program_info = [](cl_program program, cl_program_info what, auto... a) {
      if (what == CL_PROGRAM_BINARIES) self_->count(kGetBinary);
      return what == CL_PROGRAM_BINARIES && self_->gives_no_binaries_ ? cl_int{CL_INVALID_PROGRAM_EXECUTABLE}
                                                                      : system_.get_program_info(program, what, a...);
    };
    api.retain_context = [](auto... a) { return self_->count(kContext), system_.retain_context(a...); };
    api.release_context = [](auto... a) {
      const cl_int code = system_.release_context(a...);
      self_->count(kReleaseContext);
      return code;
    };
    api.enqueue_read_buffer = [](cl_command_queue q, auto... a) {
      return self_->command(kRead, system_.enqueue_read_buffer, q, a...);
    };
    api.enqueue_write_buffer = [](cl_command_queue q, auto... a) {
      return self_->command(kWrite, system_.enqueue_write_buffer, q, a...);
    };
    api.enqueue_copy_buffer = [](cl_command_queue q, auto... a) {
      return self_->command(kCopy, system_.enqueue_copy_buffer, q, a...);
    };
    api.enqueue_map_buffer = [](cl_command_queue q, auto... a) {
      return self_->before(kMap, q), system_.enqueue_map_buffer(q, a...);
    };
    api.enqueue_unmap_mem_object = [](cl_command_queue q, auto... a) {
      return self_->command(kUnmap, system_.enqueue_unmap_mem_object, q, a...);
    };
    api.enqueue_nd_range_kernel = [](cl_command_queue q, auto... a) {
      return self_->command(kKernel, system_.enqueue_nd_range_kernel, q, a...);
    };
    api.flush = [](cl_command_queue q) { return self_->count(kFlush), system_.flush(q); };
    api.finish = [](cl_command_queue q) { return self_->before_wait(kFinish), system_.finish(q); };
    api.wait_for_events = [](cl_uint count, const cl_event* events) {
      self_->before_wait(kWait);
      const cl_int code = system_.wait_for_events(count, events);
      return code == CL_SUCCESS && self_->failed_status(events[0]) < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
    };
    api.get_event_info = [](cl_event event, cl_event_info what, std::size_t size, void* value, std::size_t* size_ret) {
      const cl_int code = system_.get_event_info(event, what, size, value, size_ret);
      cl_int status = CL_QUEUED;
      if (code == CL_SUCCESS && what == CL_EVENT_COMMAND_EXECUTION_STATUS) std::memcpy(&status, value, sizeof status);
      if (status == CL_COMPLETE && (status = self_->failed_status(event)) < 0) std::memcpy(value, &status, sizeof status);
      return code;
    };
    api.set_event_callback = [](cl_event event, cl_int type, void(CL_CALLBACK * call)(cl_event, cl_int, void*), void* data) {
      self_->count(kCallback);
      if (self_->no_callbacks_) return cl_int{CL_INVALID_OPERATION};
      auto* const callback = new Callback{call, data};
      const cl_int code = system_.set_event_callback(event, type, &on_end, callback);
      if (code != CL_SUCCESS) delete callback;
      return code;
    };
    api.set_user_event_status = [](cl_event event, cl_int status) {
      if (status < 0) self_->passed_on_ = status;
      return system_.set_user_event_status(event, CL_COMPLETE);  // a driver may abort where one fails
    };
    api.create_user_event = [](auto... a) { return self_->count(kUserEvent), system_.create_user_event(a...); };
    Access<OpenClLibrary>::set(api);
  }
  ~OpenClDriver() {
    let_go();
    for (int i = 0; i < 60'000 && counts_[kReleaseContext] < counts_[kContext]; ++i) {  // some may go on threads of theirs
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(counts_[kReleaseContext], counts_[kContext]) << "a device that was opened under the driver is still open";
    forget_failed();
    Access<OpenClLibrary>::set(system_);
    self_ = nullptr;
  }
  OpenClDriver(const OpenClDriver&) = delete;
  OpenClDriver& operator=(const OpenClDriver&) = delete;

  int calls(Call call) const { return counts_[call]; }
  // Calls count from now on, but for those that say what is open.
  void count_anew() {
    for (int call = 0; call < kCallCount; ++call) {
      if (call != kContext && call != kReleaseContext) counts_[static_cast<std::size_t>(call)] = 0;
    }
  }
  int transfers() const { return counts_[kRead] + counts_[kWrite] + counts_[kCopy]; }

  // From the next command on nothing is done on its queue. A thread that called this and then waits for the device is let go, and
  // counted: a test of who waits fails, and does not hang.
  void hold() {
    const std::lock_guard<std::mutex> lock(mutex_);
    forget_failed();
    holder_ = std::this_thread::get_id();
    hold_next_ = true;
  }
  // The same from the command after the next `kernels` kernels on.
  void hold_after(int kernels) {
    const std::lock_guard<std::mutex> lock(mutex_);
    forget_failed();
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
  // The command that is held ends, and is said to have ended with an error, until the next hold. (PoCL 3.1 aborts where one really
  // does.)
  void fail_held(cl_int code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_code_ = code;
    let_go_locked();
  }
  // The error with which a user event ended; 0: none did.
  cl_int passed_on() const { return passed_on_; }
  // Devices that are opened from now on are said to have memory of their own, as graphics cards do.
  void have_own_memory() { has_own_memory_ = true; }
  // Devices that are opened from now on are said to see all memory of the host (fine-grained system SVM).
  void share_all_memory() { shares_all_memory_ = true; }
  // The driver uses memory of the host that lies otherwise by way of a copy of its own. SIZE_MAX: all.
  void use_host_memory_at(std::size_t alignment, std::size_t multiple) {
    host_alignment_ = alignment;
    host_multiple_ = multiple;
  }
  // Devices that are opened from now on are said to have no compiler.
  void have_no_compiler() { has_no_compiler_ = true; }
  // Devices that are opened from now on are said to take SPIR-V; what they are given is OpenCL C.
  void take_text_as_il() { takes_text_as_il_ = true; }
  // The driver builds no program, and gives this code and this log; CL_SUCCESS: the driver builds programs again.
  void fail_builds(cl_int code, const std::string& log = "") {
    build_log_ = log;
    build_code_ = code;
  }
  // The driver gives no binaries of programs.
  void give_no_binaries() { gives_no_binaries_ = true; }
  // The driver refuses callbacks.
  void refuse_callbacks() { no_callbacks_ = true; }
  // Those of the latest program that was built.
  std::string build_options() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return build_options_;
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

  struct Callback {
    void(CL_CALLBACK* call)(cl_event, cl_int, void*);
    void* data;
  };
  static void CL_CALLBACK on_end(cl_event event, cl_int status, void* callback) {
    const std::unique_ptr<Callback> c(static_cast<Callback*>(callback));
    const cl_int failed = self_ != nullptr ? self_->failed_status(event) : 0;
    c->call(event, failed < 0 ? failed : status, c->data);
  }

  void count(Call call) { ++counts_[call]; }

  void set_build_options(const char* options) {
    const std::lock_guard<std::mutex> lock(mutex_);
    build_options_ = options;
  }

  // A command whose last argument is where its event goes.
  template <typename Function, typename... Args>
  cl_int command(Call call, Function function, cl_command_queue queue, Args... args) {
    const bool held = before(call, queue);
    const cl_int code = function(queue, args...);
    cl_event* const event = std::get<sizeof...(Args) - 1>(std::tuple<Args...>(args...));
    if (!held || code != CL_SUCCESS || event == nullptr) return code;
    const std::lock_guard<std::mutex> lock(mutex_);
    system_.retain_event(*event);
    held_command_ = *event;
    return code;
  }

  cl_int failed_status(cl_event event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return event == held_command_ ? failed_code_ : CL_SUCCESS;
  }

  void forget_failed() {
    failed_code_ = CL_SUCCESS;
    if (held_command_ != nullptr) system_.release_event(held_command_);
    held_command_ = nullptr;
  }

  // True: the command is the first that is held.
  bool before(Call call, cl_command_queue queue) {
    count(call);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (call == kKernel && hold_after_ >= 0 && hold_after_-- == 0) hold_next_ = true;
    if (!hold_next_ || held_ != nullptr) return false;
    hold_next_ = false;
    cl_context context = nullptr;
    cl_int code = symbol<decltype(&::clGetCommandQueueInfo)>("clGetCommandQueueInfo")(queue, CL_QUEUE_CONTEXT, sizeof context,
                                                                                      &context, nullptr);
    EXPECT_EQ(code, CL_SUCCESS);
    held_ = symbol<decltype(&::clCreateUserEvent)>("clCreateUserEvent")(context, &code);
    EXPECT_EQ(code, CL_SUCCESS);
    EXPECT_EQ(symbol<decltype(&::clEnqueueBarrierWithWaitList)>("clEnqueueBarrierWithWaitList")(queue, 1, &held_, nullptr),
              CL_SUCCESS);
    return true;
  }

  void before_wait(Call call) {
    count(call);
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
  std::atomic<bool> no_callbacks_{false};
  std::atomic<cl_int> build_code_{CL_SUCCESS};
  std::string build_log_;
  std::atomic<bool> has_own_memory_{false};
  std::atomic<bool> shares_all_memory_{false};
  std::atomic<std::size_t> host_alignment_{1}, host_multiple_{1};
  std::atomic<bool> has_no_compiler_{false};
  std::atomic<bool> gives_no_binaries_{false};
  std::atomic<bool> takes_text_as_il_{false};
  std::atomic<cl_int> passed_on_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::string build_options_;
  std::thread::id holder_;
  bool hold_next_ = false;
  int hold_after_ = -1;
  cl_event held_ = nullptr;
  cl_event held_command_ = nullptr;
  cl_int failed_code_ = CL_SUCCESS;
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
