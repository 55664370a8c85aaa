// Rounding to whole numbers, ties to even, whatever rounding mode the host has set.
#pragma once

#include <cmath>

namespace evn {

inline double round_even(double x) {
  const double down = std::floor(x);
  const double rest = x - down;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2) != 0);
  return std::copysign(up ? down + 1 : down, x);
}

}  // namespace evn
