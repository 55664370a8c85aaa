#include "runtime/objects/time_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace evn {

std::size_t TimeBuckets::of(std::uint64_t ns) noexcept {
  if (ns < std::uint64_t{1} << kLeastOctave) return static_cast<std::size_t>(ns >> kSteps);
  const int octave = std::bit_width(ns) - 1;
  if (octave >= kOctavesEnd) return kCount - 1;
  const std::size_t step = static_cast<std::size_t>(ns >> (octave - kSteps)) - (std::size_t{1} << kSteps);
  return (static_cast<std::size_t>(octave - kLeastOctave + 1) << kSteps) + step;
}

std::uint64_t TimeBuckets::begin(std::size_t bucket) noexcept {
  const std::uint64_t step = bucket & ((1u << kSteps) - 1);
  const std::size_t octave = bucket >> kSteps;
  if (octave == 0) return step << kSteps;
  return (step + (1u << kSteps)) << (octave + kLeastOctave - 1 - kSteps);
}

void TimeCounts::add(const TimeCounts& other) {
  if (other.buckets.empty()) return;
  if (buckets.empty()) buckets.resize(TimeBuckets::kCount);
  for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] += other.buckets[i];
  count += other.count;
  sum_ns += other.sum_ns;
  max_ns = std::max(max_ns, other.max_ns);
}

std::uint64_t TimeCounts::quantile_ns(double share) const {
  if (count == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count)));
  const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i + 1 < buckets.size(); ++i) {
    seen += buckets[i];
    if (seen >= rank) return std::min(TimeBuckets::begin(i + 1) - 1, max_ns);
  }
  return max_ns;
}

std::uint64_t TimeCounts::count_up_to(std::uint64_t ns) const {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i + 1 < buckets.size() && TimeBuckets::begin(i + 1) - 1 <= ns; ++i) n += buckets[i];
  return n;
}

void TimeHistogram::add(std::uint64_t ns) noexcept {
  buckets_[TimeBuckets::of(ns)].fetch_add(1, std::memory_order_relaxed);
  if (ns == 0) return;  // most waits
  sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  std::uint64_t most = max_ns_.load(std::memory_order_relaxed);
  while (ns > most && !max_ns_.compare_exchange_weak(most, ns, std::memory_order_relaxed)) {}
}

// Runs go on meanwhile: the number is that of the buckets as they were read.
void TimeHistogram::read(TimeCounts* to) const {
  if (to->buckets.empty()) to->buckets.resize(TimeBuckets::kCount);
  for (std::size_t i = 0; i < TimeBuckets::kCount; ++i) {
    const std::uint64_t n = buckets_[i].load(std::memory_order_relaxed);
    to->buckets[i] += n;
    to->count += n;
  }
  to->sum_ns += sum_ns_.load(std::memory_order_relaxed);
  to->max_ns = std::max(to->max_ns, max_ns_.load(std::memory_order_relaxed));
}

}  // namespace evn
