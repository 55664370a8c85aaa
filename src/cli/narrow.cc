#include "cli/narrow.h"

#include <cmath>
#include <cstring>

#include "cli/dtype.h"

namespace evn::cli {
namespace {

constexpr evn_dtype kFloat = EVN_DTYPE_FLOAT32;
constexpr NarrowType kTypes[] = {
    {EVN_DTYPE_BFLOAT16, kFloat, 16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0},
    {EVN_DTYPE_FLOAT8E4M3FN, kFloat, 8, 3, 7, 0x7e, -1, 0x7f},
    {EVN_DTYPE_FLOAT8E4M3FNUZ, kFloat, 8, 3, 8, 0x7f, -1, 0x80},
    {EVN_DTYPE_FLOAT8E5M2, kFloat, 8, 2, 15, 0x7b, 0x7c, 0x7e},
    {EVN_DTYPE_FLOAT8E5M2FNUZ, kFloat, 8, 2, 16, 0x7f, -1, 0x80},
    {EVN_DTYPE_FLOAT8E8M0, kFloat, 8, 0, 127, 0xfe, -1, 0xff},
    {EVN_DTYPE_FLOAT4E2M1, kFloat, 4, 1, 1, 0x7, -1, -1},
    {EVN_DTYPE_UINT4, EVN_DTYPE_UINT8, 4, 0, 0, 0, -1, -1},
    {EVN_DTYPE_INT4, EVN_DTYPE_INT8, 4, 0, 0, 0, -1, -1},
    {EVN_DTYPE_UINT2, EVN_DTYPE_UINT8, 2, 0, 0, 0, -1, -1},
    {EVN_DTYPE_INT2, EVN_DTYPE_INT8, 2, 0, 0, 0, -1, -1},
};

// Powers of two without sign and zero.
bool is_scale(const NarrowType& type) { return type.dtype == EVN_DTYPE_FLOAT8E8M0; }

std::uint32_t sign_bit(const NarrowType& type) { return 1u << (type.bits - 1); }

// A number whose bits are at most type.last.
double finite_value(const NarrowType& type, std::uint32_t bits) {
  if (is_scale(type)) return std::ldexp(1.0, static_cast<int>(bits) - type.bias);
  const int exponent = static_cast<int>(bits >> type.mantissa);
  const int fraction = static_cast<int>(bits & ((1u << type.mantissa) - 1));
  if (exponent == 0) return std::ldexp(fraction, 1 - type.bias - type.mantissa);
  return std::ldexp(fraction + (1 << type.mantissa), exponent - type.bias - type.mantissa);
}

std::optional<std::uint32_t> bits_if(std::int64_t bits) {
  return bits < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(bits));
}

std::optional<std::uint32_t> integer_bits(const NarrowType& type, double value) {
  const bool is_signed = type.wide == EVN_DTYPE_INT8;
  const int least = is_signed ? -(1 << (type.bits - 1)) : 0, most = least + (1 << type.bits) - 1;
  if (!(value >= least && value <= most)) return std::nullopt;
  return static_cast<std::uint32_t>(static_cast<int>(value)) & ((1u << type.bits) - 1);
}

// Bits of the finite number that is nearest to a magnitude between the least and the largest.
std::uint32_t nearest(const NarrowType& type, double magnitude) {
  std::uint32_t low = 0, high = type.last;  // the least number that is not below the magnitude
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    if (finite_value(type, middle) < magnitude) low = middle + 1;
    else high = middle;
  }
  if (low == 0) return low;
  const double below = magnitude - finite_value(type, low - 1), above = finite_value(type, low) - magnitude;
  return below < above || (below == above && low % 2 != 0) ? low - 1 : low;
}

}  // namespace

const NarrowType* find_narrow(evn_dtype dtype) {
  for (const NarrowType& type : kTypes) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

double narrow_value(const NarrowType& type, std::uint32_t bits) {
  if (type.wide == EVN_DTYPE_UINT8) return bits;
  const std::uint32_t sign = sign_bit(type);
  if (type.wide == EVN_DTYPE_INT8) return static_cast<int>(bits ^ sign) - static_cast<int>(sign);
  if (bits == type.nan) return std::nan("");
  if (is_scale(type)) return finite_value(type, bits);
  const std::uint32_t magnitude = bits & (sign - 1);
  const double value = magnitude <= type.last       ? finite_value(type, magnitude)
                       : magnitude == type.infinity ? HUGE_VAL
                                                    : std::nan("");
  return (bits & sign) != 0 ? -value : value;
}

std::optional<std::uint32_t> narrow_bits(const NarrowType& type, double value) {
  if (type.wide != kFloat) return integer_bits(type, value);
  if (std::isnan(value)) return bits_if(type.nan);
  if (is_scale(type) && value < finite_value(type, 0)) return std::nullopt;
  const double magnitude = std::fabs(value);
  std::optional<std::uint32_t> bits;
  if (std::isinf(value)) bits = bits_if(type.infinity);
  else if (magnitude <= finite_value(type, type.last)) bits = nearest(type, magnitude);
  const bool has_sign = std::signbit(value) && bits && (*bits != 0 || type.nan != sign_bit(type));  // or there is no -0
  return has_sign ? std::optional(*bits | sign_bit(type)) : bits;
}

std::uint32_t narrow_at(const NarrowType& type, const void* data, std::size_t index) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  if (type.bits == 16) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + 2 * index, 2);
    return bits;
  }
  const std::size_t at = index * static_cast<std::size_t>(type.bits);
  return bytes[at / 8] >> at % 8 & ((1u << type.bits) - 1);
}

void set_narrow(const NarrowType& type, void* data, std::size_t index, std::uint32_t bits) {
  auto* const bytes = static_cast<unsigned char*>(data);
  if (type.bits == 16) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(bytes + 2 * index, &narrow, 2);
    return;
  }
  const std::size_t at = index * static_cast<std::size_t>(type.bits);
  bytes[at / 8] = static_cast<unsigned char>(bytes[at / 8] | bits << at % 8);
}

std::size_t narrow_size(const NarrowType& type, std::size_t count) {
  const std::size_t bits = static_cast<std::size_t>(type.bits);
  return bits >= 8 ? count * (bits / 8) : count / (8 / bits) + (count % (8 / bits) != 0 ? 1 : 0);
}

std::vector<unsigned char> widened(const NarrowType& type, const void* data, std::size_t count) {
  std::vector<unsigned char> wide(count * find_dtype(type.wide)->size);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = narrow_value(type, narrow_at(type, data, i));
    if (type.wide == EVN_DTYPE_INT8) wide[i] = static_cast<unsigned char>(static_cast<signed char>(value));
    else set_element(type.wide, wide.data(), i, value);
  }
  return wide;
}

}  // namespace evn::cli
