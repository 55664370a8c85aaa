// Sorting places by unsigned keys, in linear time; and keys that order numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/cxx20.h"

namespace evn {

struct Keyed {
  std::uint64_t key;
  std::int64_t at;
};

// Sorts by ascending key and keeps the order of equal keys. `scratch` has `count` elements too.
void sort_by_key(Keyed* items, Keyed* scratch, std::int64_t count);

// A key that is smaller for a smaller number and the same for equal ones, -0 and 0 among them. NaN has the largest of all.
template <typename T>
std::uint64_t ordered_key(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr int kSign = 8 * sizeof(T) - 1;
    const auto bits = bit_cast<Bits>(x + T{0});
    const Bits key = bits ^ ((bits >> kSign != 0 ? ~Bits{0} : Bits{0}) | Bits{1} << kSign);
    return std::isnan(x) ? std::numeric_limits<Bits>::max() : key;
  } else {
    return static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(std::numeric_limits<T>::min());
  }
}

}  // namespace evn
