// What calibration has seen of one value: its bounds, and how its elements lie between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evn {

class Observer {
 public:
  static constexpr int kHalf = 1024;  // bins on either side of zero

  // Without a histogram only bounds are kept, which takes a tenth of the time.
  explicit Observer(bool wants_histogram) : wants_histogram_(wants_histogram) {}

  // False when an element is NaN or infinite; then nothing was added. An observer whose add was stopped is of no further use.
  bool add(std::span<const float> elements);

  bool empty() const { return count_ == 0; }
  std::uint64_t count() const { return count_; }
  // 0 and 0 as long as there are no elements.
  float low() const { return low_; }
  float high() const { return high_; }

  // Bin i holds what lies from (i - kHalf) * width() on. 2 * kHalf bins; empty without a histogram, or when all elements are 0.
  std::span<const std::uint64_t> bins() const { return bins_; }
  double width() const { return reach_ / kHalf; }

 private:
  bool wants_histogram_;
  std::uint64_t count_ = 0;
  float low_ = 0, high_ = 0;
  double reach_ = 0;  // bins cover [-reach, reach); doubled where elements lie outside
  std::vector<std::uint64_t> bins_;

  void make_room(float largest);
};

}  // namespace evn
