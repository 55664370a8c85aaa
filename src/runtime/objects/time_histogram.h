// Times by their number in each of many buckets, from which percentiles are told: log-linear, as those of HdrHistogram.
// docs/decisions/0060-statistics.md
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace evn {

// Which times, in nanoseconds, a bucket has. From 1024 ns on each octave is cut into 32 buckets, so that none is wider than 1/32 of
// the times in it; below, buckets are 32 ns wide. What is longer than 73 minutes is in the last one.
struct TimeBuckets {
  static constexpr int kSteps = 5;         // 2^5 buckets in an octave
  static constexpr int kLeastOctave = 10;  // 1024 ns
  static constexpr int kOctavesEnd = 42;   // 73 min
  static constexpr std::size_t kCount = std::size_t{kOctavesEnd - kLeastOctave + 1} << kSteps;

  static std::size_t of(std::uint64_t ns) noexcept;
  // The shortest time of a bucket; of kCount: what is longer than those of all but the last.
  static std::uint64_t begin(std::size_t bucket) noexcept;
};

// What a histogram held at one moment, and what several held together.
struct TimeCounts {
  std::vector<std::uint64_t> buckets;  // empty: none; else TimeBuckets::kCount
  std::uint64_t count = 0;
  std::uint64_t sum_ns = 0;
  std::uint64_t max_ns = 0;

  void add(const TimeCounts& other);
  std::uint64_t mean_ns() const { return count == 0 ? 0 : sum_ns / count; }
  // The time that a share of them does not exceed, 0 < share <= 1: exceeds the true one by no more than 1/32 of it (below 1024 ns:
  // by less than 32 ns). 0 where there are none.
  std::uint64_t quantile_ns(double share) const;
  // How many are in buckets of which no time is longer.
  std::uint64_t count_up_to(std::uint64_t ns) const;
};

// From any thread, without locks.
class TimeHistogram {
 public:
  void add(std::uint64_t ns) noexcept;
  void read(TimeCounts* to) const;  // adds to it

 private:
  std::atomic<std::uint64_t> buckets_[TimeBuckets::kCount] = {};
  std::atomic<std::uint64_t> sum_ns_{0};
  std::atomic<std::uint64_t> max_ns_{0};
};

}  // namespace evn
