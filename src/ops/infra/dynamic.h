// Quantization to uint8 with a scale and zero point taken from the values themselves, as DynamicQuantizeLinear does it.
#pragma once

#include <algorithm>

#include "ops/infra/round.h"

namespace evn {

struct DynamicRange {
  float scale = 0;
  double zero = 0;  // a whole number of 0 to 255

  // The quotient is a float32, as it is where the standard's own implementations divide.
  std::uint8_t quantized(float x) const {
    const double quotient = scale == 0 ? 0 : round_even(static_cast<double>(x / scale));
    return quantized_to<std::uint8_t>(quotient + zero);
  }
};

// Scale and zero point of numbers between `low` and `high`, which have 0 between them; the zero point makes 0 exact. As in ONNX
// Runtime, the scale is 1 if all numbers are 0, and the zero point is 255 if `low` is infinite.
inline DynamicRange dynamic_range_of(float low, float high) {
  DynamicRange range;
  range.scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = range.scale == 0 ? 0 : -low / range.scale;
  range.zero = std::isnan(zero) ? 255 : std::clamp(round_even(static_cast<double>(zero)), 0.0, 255.0);
  return range;
}

// The range from the least to the largest element, 0 included.
inline DynamicRange dynamic_range(const float* x, std::int64_t count) {
  float low = 0, high = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  return dynamic_range_of(low, high);
}

}  // namespace evn
