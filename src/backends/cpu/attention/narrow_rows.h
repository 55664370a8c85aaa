// Rows of keys and values in the formats of pages (device/paged.h), from and to float32, for one cluster. Included by
// attention_rows.h only.
#pragma once

#include "backends/cpu/simd/half.h"
#include "backends/cpu/simd/lanes.h"
#include "device/paged.h"

namespace evn::EVN_ISA {
namespace {

// The loops below are for the compiler's vectorizer.

inline void widen_bfloat16(const std::uint16_t* __restrict x, std::int64_t n, float* __restrict to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = __builtin_bit_cast(float, std::uint32_t{x[i]} << 16);
}

// To nearest, ties to even; a NaN is the quiet one.
inline void narrow_bfloat16(const float* __restrict x, std::int64_t n, std::uint16_t* __restrict to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x[i]);
    const std::uint32_t rounded = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    to[i] = static_cast<std::uint16_t>(rounded >> 16);
  }
}

inline void widen_int8(const std::int8_t* __restrict x, float scale, std::int64_t n, float* __restrict to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(x[i]) * scale;
}

inline void narrow_int8(const float* __restrict x, float inverse, std::int64_t n, std::int8_t* __restrict to) {
  constexpr float kRounder = 0x1.8p23f;  // a number up to 2^22 and this: to nearest, ties to even
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, x[i] * inverse + kRounder) & 0xffu);
  }
}

// A row of n elements in 16 or 8 bits; writes whole vectors, with zeros behind the last element.
inline void widen_row(RowFormat format, const char* at, std::int64_t n, float* to) {
  if (n % kLanes != 0) store(to + n - n % kLanes, zero());
  if (format == RowFormat::kFloat16) return widen_half(reinterpret_cast<const std::uint16_t*>(at), to, n);
  if (format == RowFormat::kBfloat16) return widen_bfloat16(reinterpret_cast<const std::uint16_t*>(at), n, to);
  float scale;
  __builtin_memcpy(&scale, at, sizeof scale);
  widen_int8(reinterpret_cast<const std::int8_t*>(at) + sizeof scale, scale, n, to);
}

// `rows` rows that lie `step` bytes apart, to rows `width` floats apart.
__attribute__((noinline)) void widen_rows(RowFormat format, const char* at, std::int64_t step, std::int64_t rows, std::int64_t n,
                                          float* to, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r, at += step, to += width) widen_row(format, at, n, to);
}

void widen_one(RowFormat format, const char* at, std::int64_t n, float* to) { widen_rows(format, at, 0, 1, n, to, 0); }

// A row that is not finite becomes NaN in 8 bits.
void store_row(RowFormat format, const float* x, std::int64_t n, char* to) {
  if (format == RowFormat::kPlain) {
    __builtin_memcpy(to, x, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  if (format == RowFormat::kFloat16) return narrow_half(x, reinterpret_cast<std::uint16_t*>(to), n);
  if (format == RowFormat::kBfloat16) return narrow_bfloat16(x, n, reinterpret_cast<std::uint16_t*>(to));
  Vec largest = zero(), undefined = zero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const Vec v = load_some(x + i, n - i);
    largest = max_of(largest, abs_of(v));
    undefined = undefined + (v - v);
  }
  float most = 0, wrong = 0;
  for (int i = 0; i < kLanes; ++i) {
    most = largest[i] > most ? largest[i] : most;
    wrong += undefined[i];
  }
  const float scale = most / 127 + wrong;
  __builtin_memcpy(to, &scale, sizeof scale);
  narrow_int8(x, most > 0 ? 127 / most : 0, n, reinterpret_cast<std::int8_t*>(to) + sizeof scale);
}

}  // namespace
}  // namespace evn::EVN_ISA
