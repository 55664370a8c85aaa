// Where the largest element of a line is.
#pragma once

#include <cstdint>

namespace evn {

// NaN is above all numbers.
template <typename T>
bool is_above(T x, T best) {
  return (x > best) | ((x != x) & (best == best));
}

// The first largest of `length` elements, or with `last` the last one, of float, double or std::int64_t. `length` is not 0.
template <typename T>
std::int64_t first_largest(const T* x, std::int64_t length, bool last = false);

}  // namespace evn
