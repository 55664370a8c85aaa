#include "cli/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace evn::cli {
namespace {

// From 1024 ns on, 32 buckets in an octave; below, buckets of 32 ns. The last one has all that takes longer than 4 hours.
constexpr int kSteps = 5;
constexpr int kLeastOctave = 10;
constexpr int kOctavesEnd = 44;
constexpr std::size_t kBuckets = std::size_t{kOctavesEnd - kLeastOctave + 1} << kSteps;

std::size_t bucket_of(std::uint64_t ns) {
  if (ns >> kLeastOctave == 0) return static_cast<std::size_t>(ns >> kSteps);
  const int octave = std::bit_width(ns) - 1;
  if (octave >= kOctavesEnd) return kBuckets - 1;
  const std::uint64_t step = (ns >> (octave - kSteps)) - (1u << kSteps);
  return (static_cast<std::size_t>(octave - kLeastOctave + 1) << kSteps) + static_cast<std::size_t>(step);
}

std::uint64_t end_of(std::size_t bucket) {
  const std::size_t next = bucket + 1;
  const std::uint64_t step = next & ((1u << kSteps) - 1);
  const std::size_t octave = next >> kSteps;
  return octave == 0 ? step << kSteps : (step + (1u << kSteps)) << (octave + kLeastOctave - 1 - kSteps);
}

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

void Latencies::add(std::uint64_t ns) {
  if (buckets_.empty()) buckets_.resize(kBuckets);
  ++buckets_[bucket_of(ns)];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
  sum_ns_ += static_cast<double>(ns);
}

void Latencies::add(const Latencies& other) {
  if (other.count_ == 0) return;
  if (buckets_.empty()) buckets_.resize(kBuckets);
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
  sum_ns_ += other.sum_ns_;
}

double Latencies::mean_ms() const { return count_ == 0 ? 0 : sum_ns_ / static_cast<double>(count_) / 1e6; }
double Latencies::max_ms() const { return ms(max_ns_); }

double Latencies::quantile_ms(double share) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
  const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i + 1 < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return ms(std::min(end_of(i) - 1, max_ns_));
  }
  return max_ms();
}

std::vector<Latencies::Point> Latencies::curve() const {
  std::vector<Point> points;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i] == 0) continue;
    seen += buckets_[i];
    const double latency = i + 1 == kBuckets ? max_ms() : ms(std::min(end_of(i) - 1, max_ns_));
    points.push_back({static_cast<double>(seen) / static_cast<double>(count_), latency});
  }
  return points;
}

}  // namespace evn::cli
