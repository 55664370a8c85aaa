#include "runtime/objects/event.h"

namespace evn {

HostEvent::~HostEvent() {
  if (event_.native != nullptr) event_.device->native()->release_event(event_.native);
}

const Event& HostEvent::of(const Runtime& runtime) const {
  if (runtime_.get() != &runtime) fail(EVN_ERROR_INVALID_ARGUMENT, "the event is of another runtime");
  return event_;
}

// A device remembers some of its latest errors only, so that this remembers its own.
bool HostEvent::wait(const Cancel& cancel) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (error_.has_value()) throw *error_;
    if (has_ended_) return true;
  }
  std::optional<Error> error;
  try {
    if (event_.device != nullptr && !event_.device->wait_or_stop(event_, cancel)) return false;
  } catch (const Error& e) {
    if (e.status != EVN_ERROR_DEVICE_LOST) throw;
    error = e;
  }
  if (error.has_value()) {  // where it was the wait that failed, another succeeds, and what was waited for did not end so
    const Error first = *error;
    try {
      event_.device->wait(event_);
      error.reset();
    } catch (const Error&) {}
    if (!error.has_value()) throw first;
  }
  const std::lock_guard<Mutex> lock(mutex_);
  has_ended_ = true;
  if (error.has_value() && !error_.has_value()) error_ = error;
  if (error_.has_value()) throw *error_;
  return true;
}

}  // namespace evn
