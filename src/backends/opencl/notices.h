// What a driver's callbacks tell those who wait for events. A callback does no more than that, and keeps what it uses: it may come
// when the device has gone. In a forked child none comes, and none is waited for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backends/opencl/loader.h"
#include "base/mutex.h"

namespace evn {

class OpenClNotices {
 public:
  static OpenClNotices* make() { return new OpenClNotices; }
  OpenClNotices(const OpenClNotices&) = delete;
  OpenClNotices& operator=(const OpenClNotices&) = delete;

  // The device goes, whose work has ended: waits a moment for callbacks that are still to come.
  void settle() noexcept;

  // Has count() grow when the event has ended.
  cl_int watch(cl_event event) noexcept;
  // Has the user event end as `event` does: with CL_COMPLETE, or its error. Takes over a reference of it, unless it fails.
  cl_int pass_on(cl_event event, cl_event user_event) noexcept;

  std::uint64_t count() noexcept;
  // Until count() is not `seen`, or for a millisecond.
  void wait(std::uint64_t seen) noexcept;

 private:
  struct Passing;
  OpenClNotices() = default;
  ~OpenClNotices() = default;
  friend struct OpenClNoticesRelease;
  void release() noexcept;
  static void CL_CALLBACK on_end(cl_event event, cl_int status, void* self);
  static void CL_CALLBACK on_end_pass(cl_event event, cl_int status, void* passing);

  std::atomic<std::uint32_t> users_{1};  // the device, and callbacks that are to come
  Mutex mutex_;                          // guards what follows
  Condition changed_;
  std::uint64_t count_ = 0;
};

struct OpenClNoticesRelease {
  void operator()(OpenClNotices* notices) const noexcept { notices->release(); }
};
using OpenClNoticesPtr = std::unique_ptr<OpenClNotices, OpenClNoticesRelease>;

}  // namespace evn
