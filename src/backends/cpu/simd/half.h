// Between float16 and float32, for one cluster; to float16 to nearest, ties to even. Included by *_loops.cc only.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {

#if defined(__AVX2__) || defined(__aarch64__)
#if defined(__aarch64__)
typedef float16x4_t Float16Vec;
static inline Vec widened(Float16Vec h) { return vcvt_f32_f16(h); }
static inline Float16Vec narrowed(Vec x) { return vcvt_f16_f32(x); }
#elif defined(__AVX512F__)
typedef __m256i Float16Vec;
static inline Vec widened(Float16Vec h) { return _mm512_maskz_cvtph_ps(kAllLanes, h); }
static inline Float16Vec narrowed(Vec x) { return _mm512_maskz_cvtps_ph(kAllLanes, x, _MM_FROUND_TO_NEAREST_INT); }
#else
typedef __m128i Float16Vec;
static inline Vec widened(Float16Vec h) { return _mm256_cvtph_ps(h); }
static inline Float16Vec narrowed(Vec x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
#endif

static inline Float16Vec load_half(const std::uint16_t* x, std::int64_t n) {
  Float16Vec h = {};
  __builtin_memcpy(&h, x, static_cast<std::size_t>(n) * sizeof(std::uint16_t));
  return h;
}
static inline void store_half(std::uint16_t* y, Float16Vec h, std::int64_t n) {
  __builtin_memcpy(y, &h, static_cast<std::size_t>(n) * sizeof(std::uint16_t));
}

static inline void widen_half(const std::uint16_t* x, float* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, widened(load_half(x + i, kLanes)));
  if (i < n) store_n(y + i, widened(load_half(x + i, n - i)), n - i);
}

static inline void narrow_half(const float* x, std::uint16_t* y, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(y + i, narrowed(load(x + i)), kLanes);
  if (i < n) store_half(y + i, narrowed(load_n(x + i, n - i)), n - i);
}
#else
// As ops/infra/numeric.h does it, in integers.
static inline float widened(std::uint32_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude < 0x400u) return sign != 0 ? -0x1p-24f * static_cast<float>(magnitude) : 0x1p-24f * static_cast<float>(magnitude);
  const std::uint32_t bits = magnitude > 0x7c00u    ? 0x7fc00000u
                             : magnitude == 0x7c00u ? 0x7f800000u
                                                    : (magnitude << 13) + (112u << 23);
  return __builtin_bit_cast(float, sign | bits);
}

static inline std::uint16_t narrowed(float x) {
  const auto all = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = all >> 16 & 0x8000u, a = all & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (a < 113u << 23) {
    const float units = __builtin_bit_cast(float, a) * 0x1p24f + 0x1p23f;  // 2^23 has no digits behind the point
    return static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, units) & 0xffffu));
  }
  const std::uint32_t rounded = ((a + 0xfffu + (a >> 13 & 1u)) >> 13) - (112u << 10);
  return static_cast<std::uint16_t>(sign | (rounded < 0x7c00u ? rounded : 0x7c00u));
}

static inline void widen_half(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = widened(x[i]);
}

static inline void narrow_half(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = narrowed(x[i]);
}
#endif

}  // namespace evn::EVN_ISA
