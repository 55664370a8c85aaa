// Where the largest or the smallest element of a line is.
#pragma once

#include <cstdint>
#include <type_traits>

namespace evn {

// True if x is above `best`, or below it if kLargest is false. NaN is beyond all numbers.
template <bool kLargest, typename T>
bool is_beyond(T x, T best) {
  const bool beyond = kLargest ? x > best : x < best;
  if constexpr (std::is_floating_point_v<T>) return beyond | ((x != x) & (best == best));
  else return beyond;
}

// Position of the first of the largest (smallest) of `length` elements, or with `last` of the last one. T is any type of numbers.
// `length` is not 0.
template <typename T, bool kLargest = true>
std::int64_t first_extreme(const T* x, std::int64_t length, bool last = false);

}  // namespace evn
