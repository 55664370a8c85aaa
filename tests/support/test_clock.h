// A clock of deadlines that stands still, counts who looks at it, and after a chosen number of looks says that all time is over.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cancel.h"

namespace evn::test {

template <>
struct Access<DeadlineClock> {
  static std::uint64_t (*replace(std::uint64_t (*clock)()))() { return DeadlineClock::clock_.exchange(clock); }
};

class TestClock {
 public:
  TestClock() {
    restart();
    before_ = Access<DeadlineClock>::replace(&now);
  }
  ~TestClock() { Access<DeadlineClock>::replace(before_); }
  TestClock(const TestClock&) = delete;
  TestClock& operator=(const TestClock&) = delete;

  // From now on, time is over after so many looks. INT64_MAX: never.
  void restart(std::int64_t looks_until_late = INT64_MAX) {
    looks_.store(0);
    late_after_.store(looks_until_late);
  }
  // Since it was last restarted.
  std::int64_t looks() const { return looks_.load(); }

  static constexpr std::uint64_t kNow = 1'000'000'000;

 private:
  static std::uint64_t now() { return looks_.fetch_add(1) >= late_after_.load() ? UINT64_MAX - 1 : kNow; }

  std::uint64_t (*before_)();
  static inline std::atomic<std::int64_t> looks_{0};
  static inline std::atomic<std::int64_t> late_after_{INT64_MAX};
};

}  // namespace evn::test
