#include "ops/infra/small_types.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kNone = -1;

// A floating format of a sign, exponent bits and M mantissa bits, by its codes without the sign.
struct Format {
  DType dtype;
  int bits;  // of an element, the sign included
  int mantissa;
  int bias;
  int largest;         // code of the largest finite number
  int infinity;        // or kNone
  int nan;             // or kNone
  bool negative_zero;  // false: its code is the only NaN
};
constexpr Format kFormats[] = {
    {DType::kFloat8E4M3FN, 8, 3, 7, 0x7E, kNone, 0x7F, true}, {DType::kFloat8E4M3FNUZ, 8, 3, 8, 0x7F, kNone, kNone, false},
    {DType::kFloat8E5M2, 8, 2, 15, 0x7B, 0x7C, 0x7F, true},   {DType::kFloat8E5M2FNUZ, 8, 2, 16, 0x7F, kNone, kNone, false},
    {DType::kFloat4E2M1, 4, 1, 1, 0x7, kNone, kNone, true},
};

const Format* format_of(DType dtype) {
  for (const Format& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

// ---- codes in memory ----

int get_code(DType dtype, const void* data, std::int64_t i) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  const int bits = static_cast<int>(dtype_bits(dtype));
  if (bits == 8) return bytes[i];
  const int to_a_byte = 8 / bits;
  return bytes[i / to_a_byte] >> (static_cast<int>(i % to_a_byte) * bits) & ((1 << bits) - 1);
}

void set_code(DType dtype, void* data, std::int64_t i, int code) {
  auto* bytes = static_cast<std::uint8_t*>(data);
  const int bits = static_cast<int>(dtype_bits(dtype));
  if (bits == 8) {
    bytes[i] = static_cast<std::uint8_t>(code);
    return;
  }
  const int to_a_byte = 8 / bits;
  const int shift = static_cast<int>(i % to_a_byte) * bits;
  const int mask = ((1 << bits) - 1) << shift;
  std::uint8_t& byte = bytes[i / to_a_byte];
  byte = static_cast<std::uint8_t>((byte & ~mask) | (code << shift & mask));
}

// ---- floating formats ----

double value_of(const Format& f, int code) {
  const int sign = 1 << (f.bits - 1);
  const int magnitude = code & (sign - 1);
  const bool negative = (code & sign) != 0;
  if (!f.negative_zero && code == sign) return kNan;
  if (magnitude == f.nan || (f.infinity != kNone && magnitude > f.infinity)) return kNan;
  double value = kInfinite;
  if (magnitude != f.infinity) {
    const int exponent = magnitude >> f.mantissa;
    const int mantissa = magnitude & ((1 << f.mantissa) - 1);
    value = std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << f.mantissa), std::max(exponent, 1) - f.bias - f.mantissa);
  }
  return negative ? -value : value;
}

// Units in the last place of exponent `exponent`, to nearest, ties to even.
std::int64_t round_to_units(double x) {
  auto units = static_cast<std::int64_t>(x);
  const double rest = x - static_cast<double>(units);
  return rest > 0.5 || (rest == 0.5 && units % 2 != 0) ? units + 1 : units;
}

int code_of(const Format& f, double x, bool saturate) {
  const int sign_bit = 1 << (f.bits - 1);
  const int sign = std::signbit(x) ? sign_bit : 0;
  if (std::isnan(x)) return f.nan != kNone ? sign | f.nan : sign_bit;
  const double a = std::fabs(x);
  std::int64_t code = f.largest + 1;
  if (a == 0) {
    code = 0;
  } else if (!std::isinf(a) && std::ilogb(a) <= 64) {
    const int exponent = std::max(std::ilogb(a), 1 - f.bias);
    // A mantissa that rounds up to the next power of two carries into the exponent.
    code =
        static_cast<std::int64_t>(exponent + f.bias - 1) * (1 << f.mantissa) + round_to_units(std::ldexp(a, f.mantissa - exponent));
  }
  if (code > f.largest) {
    if (saturate || (f.nan == kNone && f.negative_zero)) return sign | f.largest;
    if (f.infinity != kNone) return sign | f.infinity;
    return f.nan != kNone ? sign | f.nan : sign_bit;
  }
  if (code == 0 && !f.negative_zero) return 0;
  return sign | static_cast<int>(code);
}

// ---- float8e8m0: 2^(code - 127), 255 is NaN, no sign and no zero ----

constexpr int kScaleBias = 127;
constexpr int kScaleNan = 255;

int scale_code_of(double x, bool saturate, Rounding rounding) {
  if (std::isnan(x)) return kScaleNan;
  const double a = std::fabs(x);
  if (a == 0) return saturate ? 0 : kScaleNan;
  if (std::isinf(a)) return saturate ? kScaleNan - 1 : kScaleNan;
  int exponent = std::ilogb(a);
  const double fraction = std::ldexp(a, -exponent);  // 1 to 2
  if (rounding == Rounding::kUp ? fraction > 1 : rounding == Rounding::kNearestEven && fraction >= 1.5) ++exponent;
  const int code = exponent + kScaleBias;
  if (code < 0) return saturate ? 0 : kScaleNan;
  if (code >= kScaleNan) return saturate ? kScaleNan - 1 : kScaleNan;
  return code;
}

// ---- integers ----

struct Range {
  int low, high;
};

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kUint4: return {0, 15};
    case DType::kInt4: return {-8, 7};
    case DType::kUint2: return {0, 3};
    default: return {-2, 1};
  }
}

}  // namespace

bool is_small_integer(DType dtype) {
  return dtype == DType::kUint4 || dtype == DType::kInt4 || dtype == DType::kUint2 || dtype == DType::kInt2;
}

bool is_small_type(DType dtype) { return is_small_integer(dtype) || dtype == DType::kFloat8E8M0 || format_of(dtype) != nullptr; }

double small_value(DType dtype, const void* data, std::int64_t i) {
  const int code = get_code(dtype, data, i);
  if (const Format* format = format_of(dtype)) return value_of(*format, code);
  if (dtype == DType::kFloat8E8M0) return code == kScaleNan ? kNan : std::ldexp(1.0, code - kScaleBias);
  const Range range = range_of(dtype);
  return code > range.high ? code - (range.high - range.low + 1) : code;
}

void set_small_value(DType dtype, void* data, std::int64_t i, double x, bool saturate, Rounding rounding) {
  if (const Format* format = format_of(dtype)) return set_code(dtype, data, i, code_of(*format, x, saturate));
  if (dtype == DType::kFloat8E8M0) return set_code(dtype, data, i, scale_code_of(x, saturate, rounding));
  const Range range = range_of(dtype);
  const int value = std::isnan(x) ? 0 : static_cast<int>(std::clamp<double>(x, range.low, range.high));
  set_code(dtype, data, i, value);
}

void clear_rest(DType dtype, void* data, std::int64_t count) {
  const auto bits = static_cast<std::int64_t>(dtype_bits(dtype));
  if (bits >= 8 || count * bits % 8 == 0) return;
  std::uint8_t& last = static_cast<std::uint8_t*>(data)[count * bits / 8];
  last = static_cast<std::uint8_t>(last & ((1 << count * bits % 8) - 1));
}

std::uint8_t small_bits(DType dtype, const void* data, std::int64_t i) {
  return static_cast<std::uint8_t>(get_code(dtype, data, i));
}

void set_small_bits(DType dtype, void* data, std::int64_t i, std::uint64_t x) {
  set_code(dtype, data, i, static_cast<int>(x & 255));
}

}  // namespace evn
