// Rounding to whole numbers, ties to even, whatever rounding mode the host has set.
#pragma once

#include <cmath>
#include <limits>

#include "ops/infra/numeric.h"

namespace evn {

inline double round_even(double x) {
  const double down = std::floor(x);
  const double rest = x - down;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2) != 0);
  return std::copysign(up ? down + 1 : down, x);
}

// A whole number as an element of a quantized tensor: saturated. NaN becomes the least number of the type, as in ONNX Runtime.
template <typename T>
T quantized_to(double x) {
  return std::isnan(x) ? std::numeric_limits<T>::min() : saturate_to<T>(x);
}

}  // namespace evn
