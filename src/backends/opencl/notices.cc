#include "backends/opencl/notices.h"

#include <chrono>
#include <new>

namespace evn {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1};
constexpr int kLooksAtTheEnd = 1000;

}  // namespace

struct OpenClNotices::Passing {
  OpenClNotices* notices;
  cl_event user_event;
};

void OpenClNotices::release() noexcept {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void OpenClNotices::settle() noexcept {
  for (int i = 0; i < kLooksAtTheEnd && users_.load(std::memory_order_acquire) > 1; ++i) wait(count());
}

cl_int OpenClNotices::watch(cl_event event) noexcept {
  users_.fetch_add(1, std::memory_order_relaxed);
  const cl_int code = cl_call(opencl().set_event_callback, event, cl_int{CL_COMPLETE}, &on_end, static_cast<void*>(this));
  if (code != CL_SUCCESS) users_.fetch_sub(1, std::memory_order_relaxed);
  return code;
}

cl_int OpenClNotices::pass_on(cl_event event, cl_event user_event) noexcept {
  std::unique_ptr<Passing> passing(new (std::nothrow) Passing{this, user_event});
  if (passing == nullptr) return CL_OUT_OF_HOST_MEMORY;
  users_.fetch_add(1, std::memory_order_relaxed);
  const cl_int code =
      cl_call(opencl().set_event_callback, event, cl_int{CL_COMPLETE}, &on_end_pass, static_cast<void*>(passing.get()));
  if (code == CL_SUCCESS) passing.release();
  else users_.fetch_sub(1, std::memory_order_relaxed);
  return code;
}

void CL_CALLBACK OpenClNotices::on_end(cl_event, cl_int, void* self) {
  auto* const notices = static_cast<OpenClNotices*>(self);
  {
    const LockIfAlive lock(notices->mutex_);
    ++notices->count_;
    notices->changed_.notify_all();
  }
  notices->release();
}

void CL_CALLBACK OpenClNotices::on_end_pass(cl_event, cl_int status, void* passing) {
  const std::unique_ptr<Passing> p(static_cast<Passing*>(passing));
  opencl().set_user_event_status(p->user_event, status < 0 ? status : CL_COMPLETE);
  opencl().release_event(p->user_event);
  p->notices->release();
}

std::uint64_t OpenClNotices::count() noexcept {
  const LockIfAlive lock(mutex_);
  return count_;
}

void OpenClNotices::wait(std::uint64_t seen) noexcept {
  if (!mutex_.lock_if_alive()) return;
  if (count_ == seen) changed_.wait_for(mutex_, kBetweenLooks);
  mutex_.unlock();
}

}  // namespace evn
