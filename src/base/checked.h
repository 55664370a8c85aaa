// Size arithmetic that cannot wrap. Every size and index that comes from a model goes through here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace evn {

template <typename T>
T checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) fail(EVN_ERROR_LIMIT, "a size overflows");
  return r;
}

template <typename T>
T checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) fail(EVN_ERROR_LIMIT, "a size overflows");
  return r;
}

template <typename T>
T checked_sub(T a, T b) {
  T r;
  if (__builtin_sub_overflow(a, b, &r)) fail(EVN_ERROR_LIMIT, "a size overflows");
  return r;
}

// The smallest multiple of `step` (a power of two) that is >= n.
inline std::size_t align_up(std::size_t n, std::size_t step) { return checked_add(n, step - 1) & ~(step - 1); }

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// The smallest multiple of `unit` that is >= n.
inline std::int64_t round_up(std::int64_t n, std::int64_t unit) { return checked_mul(ceil_div(n, unit), unit); }

}  // namespace evn
