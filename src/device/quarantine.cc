#include "device/quarantine.h"

#include "base/cancel.h"

namespace evn {

void Quarantine::begin(const LogSink& log, std::uint64_t grace_ns) noexcept {
  log_ = log;
  set_grace(grace_ns);
}

void Quarantine::note_left() noexcept {
  const LockIfAlive lock(mutex_);
  if (left_.load(std::memory_order_relaxed) == 0) since_ns_ = deadline_clock_ns();
  left_.fetch_add(1, std::memory_order_release);
}

void Quarantine::note_ended() noexcept {
  {
    const LockIfAlive lock(mutex_);
    if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1 || !on_) return;
    on_ = false;
  }
  LogEvent(log_, EVN_LOG_WARNING, "device.returned")
      .device(device_.c_str())
      .write("device %s has ended what was left to it: its quarantine is over", device_.c_str());
}

bool Quarantine::is_on() const noexcept {
  if (left_.load(std::memory_order_acquire) == 0) return false;
  const std::uint64_t grace = grace_ns_.load(std::memory_order_relaxed);
  {
    const LockIfAlive lock(mutex_);
    if (left_.load(std::memory_order_relaxed) == 0) return false;
    if (on_) return true;
    if (deadline_clock_ns() - since_ns_ < grace) return false;
    on_ = true;
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  LogEvent(log_, EVN_LOG_ERROR, "device.quarantined")
      .device(device_.c_str())
      .field("grace_ns", grace)
      .write("device %s is in quarantine: it has not ended work whose time was over", device_.c_str());
  return true;
}

}  // namespace evn
