// Latencies by their number in narrow buckets, as those of HdrHistogram: percentiles are off by 3.2 % at most, whatever the range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evn::cli {

class Latencies {
 public:
  void add(std::uint64_t ns);
  void add(const Latencies& other);

  std::uint64_t count() const { return count_; }
  double mean_ms() const;
  double max_ms() const;
  // What a share of them does not exceed, 0 < share <= 1.
  double quantile_ms(double share) const;

  // The curve of latencies over percentiles: from which share on the latency is more than what stood before.
  struct Point {
    double share;  // of those that take no longer
    double ms;
  };
  std::vector<Point> curve() const;

 private:
  std::vector<std::uint64_t> buckets_;  // empty: none
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
  double sum_ns_ = 0;
};

}  // namespace evn::cli
