// Element types in references: dispatch over dtypes, integer arithmetic that wraps without undefined behaviour, conversion from
// floating point to integers, and the 16-bit floating types.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include "base/cxx20.h"
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

// Calls f(i) for i from 0 to count - 1: a plain loop between cancellation points.
template <typename F>
void each_element(std::int64_t count, F&& f) {
  in_pieces(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
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

// 2^e, of a normal double.
constexpr double power_of_two(int e) { return bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }

// 16-bit floating formats of 1 sign bit, E exponent bits and M mantissa bits.
template <int E, int M>
struct SmallFloat {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr std::uint16_t kInfinity = static_cast<std::uint16_t>(((1 << E) - 1) << M);
  static constexpr double kUnit = power_of_two(1 - kBias - M);
  std::uint16_t bits = 0;

  double value() const {
    const std::uint64_t sign = static_cast<std::uint64_t>(bits >> 15) << 63;
    const int exponent = bits >> M & ((1 << E) - 1);
    const std::uint64_t mantissa = bits & ((1u << M) - 1);
    // 2^(1 - kBias - M) is the unit of what is below the normal numbers.
    if (exponent == 0) return bit_cast<double>(bit_cast<std::uint64_t>(kUnit * static_cast<double>(mantissa)) | sign);
    const bool finite = exponent != (1 << E) - 1;
    const std::uint64_t wide = finite ? static_cast<std::uint64_t>(exponent - kBias + 1023) : 2047;
    // A NaN is the quiet one.
    const std::uint64_t rest = finite ? mantissa << (52 - M) : mantissa != 0 ? std::uint64_t{1} << 51 : 0;
    return bit_cast<double>(sign | wide << 52 | rest);
  }

  // To nearest, ties to even; too large gives infinity.
  static SmallFloat from(double x) {
    constexpr int kShift = 52 - M;
    constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
    const auto all = bit_cast<std::uint64_t>(x);
    const auto sign = static_cast<std::uint16_t>(all >> 48 & 0x8000);
    const std::uint64_t a = all & ~kSign;
    if (a > std::uint64_t{2047} << 52) return {static_cast<std::uint16_t>(sign | kInfinity | 1 << (M - 1))};
    const std::uint64_t exponent = a >> 52;
    if (exponent < 1024 - kBias) {
      // In units of the smallest number; 2^52 has no digits behind the point.
      const double units = bit_cast<double>(a) / kUnit + 0x1p52;
      return {static_cast<std::uint16_t>(sign | (bit_cast<std::uint64_t>(units) & 0xffff))};
    }
    // A mantissa that rounds up to the next power of two carries into the exponent, up to infinity.
    const std::uint64_t rounded = (a + (std::uint64_t{1} << (kShift - 1)) - 1 + (a >> kShift & 1)) >> kShift;
    const std::uint64_t biased = rounded - (static_cast<std::uint64_t>(1023 - kBias) << M);
    return {static_cast<std::uint16_t>(sign | std::min<std::uint64_t>(biased, kInfinity))};
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
