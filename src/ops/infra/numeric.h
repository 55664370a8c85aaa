// Element types in references: dispatch over dtypes, integer arithmetic that wraps without undefined behaviour, conversion from
// floating point to integers, and the 16-bit floating types.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include "base/error.h"

#include "ops/op.h"

namespace evn {

// Calls f(T{}) for the first T whose dtype it is.
template <typename... Ts, typename F>
void dispatch(DType dtype, F&& f) {
  const bool found = ((dtype == kDTypeOf<Ts> ? (f(Ts{}), true) : false) || ...);
  if (!found) fail(EVN_ERROR_UNSUPPORTED, "%s is not implemented here", dtype_name(dtype));
}

template <typename F>
void dispatch_floats(DType dtype, F&& f) {
  dispatch<float, double>(dtype, f);
}

template <typename F>
void dispatch_numbers(DType dtype, F&& f) {
  dispatch<float, double, std::int64_t, std::int32_t, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
           std::uint64_t>(dtype, f);
}

// Two's-complement results for signed and unsigned T alike.
template <typename T>
T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
template <typename T>
T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
template <typename T>
T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

// What sums of T accumulate in: double, or unsigned 64 bit for integers, whose low bits are the wrapped sum.
template <typename T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

// Towards zero; values outside the range give the nearest end of it, NaN gives 0.
template <typename T>
T saturate_to(double x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  // As a double, max() of 64-bit types is rounded up to a power of two, which is outside already.
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

// 16-bit floating formats of 1 sign bit, E exponent bits and M mantissa bits.
template <int E, int M>
struct SmallFloat {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr std::uint16_t kInfinity = static_cast<std::uint16_t>(((1 << E) - 1) << M);
  std::uint16_t bits = 0;

  double value() const {
    const int exponent = bits >> M & ((1 << E) - 1);
    const int mantissa = bits & ((1 << M) - 1);
    double magnitude;
    if (exponent == (1 << E) - 1) {
      magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    } else {
      magnitude = std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << M), (exponent == 0 ? 1 : exponent) - kBias - M);
    }
    return bits >> 15 != 0 ? -magnitude : magnitude;
  }

  // To nearest, ties to even; too large gives infinity.
  static SmallFloat from(double x) {
    const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) return {static_cast<std::uint16_t>(sign | kInfinity | 1 << (M - 1))};
    const double a = std::fabs(x);
    if (a == 0) return {sign};
    if (std::isinf(a)) return {static_cast<std::uint16_t>(sign | kInfinity)};
    const int exponent = std::max(std::ilogb(a), 1 - kBias);
    if (exponent > kBias) return {static_cast<std::uint16_t>(sign | kInfinity)};
    const double scaled = std::ldexp(a, M - exponent);
    auto units = static_cast<std::int64_t>(scaled);
    const double rest = scaled - static_cast<double>(units);
    if (rest > 0.5 || (rest == 0.5 && units % 2 != 0)) ++units;
    // A mantissa that rounds up to the next power of two carries into the exponent, up to infinity.
    return {static_cast<std::uint16_t>(sign | ((exponent + kBias - 1) * (1 << M) + units))};
  }
};
using Float16 = SmallFloat<5, 10>;
using Bfloat16 = SmallFloat<8, 7>;

template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<Bfloat16> {
  static constexpr DType value = DType::kBfloat16;
};

}  // namespace evn
