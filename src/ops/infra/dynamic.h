// Quantization to uint8 with a scale and zero point taken from the values themselves, as DynamicQuantizeLinear does it.
#pragma once

#include <algorithm>

#include "ops/infra/numeric.h"
#include "ops/infra/round.h"

namespace evn {

struct DynamicRange {
  float scale = 0;
  double zero = 0;  // a whole number of 0 to 255

  // The quotient is a float32, as it is where the standard's own implementations divide.
  std::uint8_t quantized(float x) const {
    const double quotient = scale == 0 ? 0 : round_even(static_cast<double>(x / scale));
    return saturate_to<std::uint8_t>(quotient + zero);
  }
};

// The range from the least to the largest element, 0 included; the zero point makes 0 exact.
inline DynamicRange dynamic_range(const float* x, std::int64_t count) {
  float low = 0, high = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  DynamicRange range;
  range.scale = (high - low) / 255.0f;
  if (range.scale != 0) range.zero = std::clamp(round_even(static_cast<double>(-low / range.scale)), 0.0, 255.0);
  return range;
}

}  // namespace evn
