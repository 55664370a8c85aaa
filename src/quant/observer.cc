#include "quant/observer.h"

#include <algorithm>
#include <cmath>

namespace evn {

void Observer::make_room(float largest) {
  if (bins_.empty()) {
    bins_.assign(2 * kHalf, 0);
    reach_ = std::max(static_cast<double>(largest) * 1.001, 1e-30);
  }
  while (static_cast<double>(largest) >= reach_) {  // pairs of bins become one
    std::vector<std::uint64_t> wider(2 * kHalf, 0);
    for (int i = 0; i < 2 * kHalf; ++i) wider[static_cast<std::size_t>((i - kHalf) / 2 + kHalf - (i < kHalf && i % 2 != 0 ? 1 : 0))] += bins_[static_cast<std::size_t>(i)];
    bins_ = std::move(wider);
    reach_ *= 2;
  }
}

bool Observer::add(std::span<const float> elements) {
  if (elements.empty()) return true;
  // Sums of 0 * x are 0 unless an x is NaN or infinite. Several, so that the loop can be done in vectors.
  constexpr std::size_t kLanes = 16;
  float low[kLanes], high[kLanes], odd[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) {
    low[l] = high[l] = elements[0];
    odd[l] = 0;
  }
  std::size_t i = 0;
  for (; i + kLanes <= elements.size(); i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const float x = elements[i + l];
      low[l] = x < low[l] ? x : low[l];
      high[l] = x > high[l] ? x : high[l];
      odd[l] += x * 0.0f;
    }
  }
  for (; i < elements.size(); ++i) {
    low[0] = std::min(low[0], elements[i]);
    high[0] = std::max(high[0], elements[i]);
    odd[0] += elements[i] * 0.0f;
  }
  for (const float x : odd) {
    if (!(x == 0)) return false;
  }
  const float least = *std::min_element(low, low + kLanes), most = *std::max_element(high, high + kLanes);
  low_ = count_ == 0 ? least : std::min(low_, least);
  high_ = count_ == 0 ? most : std::max(high_, most);
  count_ += elements.size();
  const float largest = std::max(std::fabs(least), std::fabs(most));
  if (!wants_histogram_ || (largest == 0 && bins_.empty())) return true;
  make_room(largest);
  const double scale = kHalf / reach_;
  for (const float x : elements) {
    const auto bin = static_cast<std::int32_t>(static_cast<double>(x) * scale + kHalf);
    ++bins_[static_cast<std::size_t>(std::clamp(bin, 0, 2 * kHalf - 1))];
  }
  return true;
}

}  // namespace evn
