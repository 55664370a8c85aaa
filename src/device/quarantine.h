// A device that does not end work whose time is over: whoever was to wait for it has gone, and what comes later would wait for
// ever. docs/decisions/0074-quarantine.md
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/mutex.h"

namespace evn {

class Quarantine {
 public:
  // The name is the device's, which outlives this.
  explicit Quarantine(const std::string& device) : device_(device) {}
  Quarantine(const Quarantine&) = delete;
  Quarantine& operator=(const Quarantine&) = delete;

  // Before threads share the device. `grace_ns`: how long it may go on with work that was left to it.
  void begin(const LogSink& log, std::uint64_t grace_ns) noexcept;
  void set_grace(std::uint64_t grace_ns) noexcept { grace_ns_.store(grace_ns, std::memory_order_relaxed); }

  // Work is under way whose time may be over before the device ends it. Both are called as often as each other; what is left of it
  // is noted before its end.
  void begin_bounded() noexcept { bounded_.fetch_add(1, std::memory_order_acq_rel); }
  void end_bounded() noexcept { bounded_.fetch_sub(1, std::memory_order_acq_rel); }
  // Whether what was enqueued so far may be behind work for which the quarantine begins.
  bool may_begin() const noexcept {
    return bounded_.load(std::memory_order_acquire) != 0 || left_.load(std::memory_order_acquire) != 0;
  }

  // Work whose time is over was left to the device; the device has ended it. Both are called as often as each other.
  void note_left() noexcept;
  void note_ended() noexcept;

  // Whether there is such work and its grace is over. Who is first to see it writes it to the log. Costs a relaxed load where
  // nothing was left.
  bool is_on() const noexcept;
  std::uint32_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  const std::string& device_;
  LogSink log_;
  std::atomic<std::uint64_t> grace_ns_{0};
  std::atomic<std::uint32_t> bounded_{0};
  std::atomic<std::uint32_t> left_{0};
  mutable std::atomic<std::uint32_t> count_{0};
  mutable Mutex mutex_;  // guards what follows, and that left_ changes with it; a leaf
  std::uint64_t since_ns_ = 0;
  mutable bool on_ = false;
};

}  // namespace evn
