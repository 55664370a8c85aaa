// Vectors of floats for one instruction-set cluster: EVN_ISA names the namespace and the compiler's flags give the width. Included
// by simd/*.cc only, each of which is compiled once per cluster; everything here is static inline, so that nothing of one cluster
// leaves its object file. NaN: max_of(bound, x) and min_of(bound, x) give x when x is NaN, so that Relu and Clip pass NaN on.
#pragma once

#include <cstdint>

#include "ops/float_functions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace evn::EVN_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float UnalignedVec __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef std::int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t BitVec __attribute__((vector_size(4 * kLanes)));  // sums wrap

static inline Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
static inline void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }

#if defined(__AVX512F__)
// gcc 12 warns of its own header where an intrinsic without a mask takes an undefined vector.
inline constexpr __mmask16 kAllLanes = 0xffff;
static inline Vec splat(float x) { return _mm512_set1_ps(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// c += a b, in c's register: gcc may otherwise choose the form that writes over a factor, and copies sums around in a loop that
// holds many.
static inline void add_product(Vec a, Vec b, Vec& c) { __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b)); }
// c += a b with a = splat(*p), in no register: where all are taken.
static inline void add_product_at(const float* p, Vec b, Vec& c) {
  __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*p));
}
static inline Vec max_of(Vec bound, Vec x) { return _mm512_maskz_max_ps(kAllLanes, bound, x); }
static inline Vec min_of(Vec bound, Vec x) { return _mm512_maskz_min_ps(kAllLanes, bound, x); }
static inline Vec sqrt_of(Vec x) { return _mm512_maskz_sqrt_ps(kAllLanes, x); }
static inline __mmask16 mask_of(std::int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
// The first n lanes, 0 <= n <= kLanes; the others are 0 or are not written.
static inline Vec load_n(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(mask_of(n), p); }
static inline void store_n(float* p, Vec v, std::int64_t n) { _mm512_mask_storeu_ps(p, mask_of(n), v); }
#elif defined(__AVX2__)
static inline Vec splat(float x) { return _mm256_set1_ps(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline Vec max_of(Vec bound, Vec x) { return _mm256_max_ps(bound, x); }
static inline Vec min_of(Vec bound, Vec x) { return _mm256_min_ps(bound, x); }
static inline Vec sqrt_of(Vec x) { return _mm256_sqrt_ps(x); }
static inline __m256i mask_of(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline Vec load_n(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, mask_of(n)); }
static inline void store_n(float* p, Vec v, std::int64_t n) { _mm256_maskstore_ps(p, mask_of(n), v); }
#else
#if defined(__x86_64__)
static inline Vec splat(float x) { return _mm_set1_ps(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
static inline Vec max_of(Vec bound, Vec x) { return _mm_max_ps(bound, x); }
static inline Vec min_of(Vec bound, Vec x) { return _mm_min_ps(bound, x); }
static inline Vec sqrt_of(Vec x) { return _mm_sqrt_ps(x); }
#elif defined(__aarch64__)
static inline Vec splat(float x) { return vdupq_n_f32(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
static inline Vec max_of(Vec bound, Vec x) { return x < bound ? bound : x; }
static inline Vec min_of(Vec bound, Vec x) { return x > bound ? bound : x; }
static inline Vec sqrt_of(Vec x) { return vsqrtq_f32(x); }
#else
static inline Vec splat(float x) { return Vec{x, x, x, x}; }
static inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
static inline Vec max_of(Vec bound, Vec x) { return x < bound ? bound : x; }
static inline Vec min_of(Vec bound, Vec x) { return x > bound ? bound : x; }
static inline Vec sqrt_of(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
}
#endif
__attribute__((noinline, unused)) static Vec load_n(const float* p, std::int64_t n) {
  Vec v = splat(0);
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) v[i] = p[i];
  }
  return v;
}
__attribute__((noinline, unused)) static void store_n(float* p, Vec v, std::int64_t n) {
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) p[i] = v[i];
  }
}
#endif

// The first n lanes, which may be all or none.
static inline Vec load_some(const float* p, std::int64_t n) { return n >= kLanes ? load(p) : n > 0 ? load_n(p, n) : splat(0); }
static inline void store_some(float* p, Vec v, std::int64_t n) {
  if (n >= kLanes) store(p, v);
  else if (n > 0) store_n(p, v, n);
}

// Stores past the caches, for what nobody reads soon: without them each line of a large output is read before it is written. `p` is
// aligned to a vector. Other threads see them after fence_past().
#if defined(__AVX512F__)
static inline void store_past(float* p, Vec v) { _mm512_stream_ps(p, v); }
static inline void fence_past() { _mm_sfence(); }
#elif defined(__AVX2__)
static inline void store_past(float* p, Vec v) { _mm256_stream_ps(p, v); }
static inline void fence_past() { _mm_sfence(); }
#elif defined(__x86_64__)
static inline void store_past(float* p, Vec v) { _mm_stream_ps(p, v); }
static inline void fence_past() { _mm_sfence(); }
#else
static inline void store_past(float* p, Vec v) { store(p, v); }
static inline void fence_past() {}
#endif

static inline Vec zero() { return splat(0); }
// Keeps the compiler from knowing the value.
static inline void hide(Vec* v) {
#if defined(__aarch64__)
  __asm__("" : "+w"(*v));
#elif defined(__x86_64__)
  __asm__("" : "+x"(*v));
#endif
}
static inline IntVec as_int(Vec v) { return reinterpret_cast<IntVec>(v); }
static inline Vec as_float(IntVec v) { return reinterpret_cast<Vec>(v); }
static inline IntVec splat_int(std::int32_t x) { return x - IntVec{}; }
static inline Vec abs_of(Vec x) { return as_float(as_int(x) & splat_int(0x7fffffff)); }

// Whether a comparison holds for all lanes.
static inline bool all_lanes(IntVec mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(mask), reinterpret_cast<__m512i>(mask)) == kAllLanes;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(as_float(mask)) == 0xff;
#elif defined(__x86_64__)
  return _mm_movemask_ps(as_float(mask)) == 0xf;
#else
  std::int32_t all = -1;
  for (int i = 0; i < kLanes; ++i) all &= mask[i];
  return all != 0;
#endif
}

// One addition chain over the lanes, in lane order.
static inline float sum_lanes(Vec v) {
  float s = v[0];
  for (int i = 1; i < kLanes; ++i) s += v[i];
  return s;
}
static inline float max_lanes(Vec v) {
  float s = v[0];
  for (int i = 1; i < kLanes; ++i) s = s < v[i] || v[i] != v[i] ? v[i] : s;
  return s;
}

// Bounds in units in the last place are what tests/backends/cpu/elementwise/vector_math_test.cc finds over all floats.

// Vectors as ops/float_functions.h has them.
namespace {
struct Numbers {
  using V = Vec;
  static inline Vec splat(float x) { return EVN_ISA::splat(x); }
  static inline Vec fma(Vec a, Vec b, Vec c) { return EVN_ISA::fma(a, b, c); }
  static inline Vec max_of(Vec bound, Vec x) { return EVN_ISA::max_of(bound, x); }
  static inline Vec min_of(Vec bound, Vec x) { return EVN_ISA::min_of(bound, x); }
  static inline Vec abs_of(Vec x) { return EVN_ISA::abs_of(x); }
  static inline Vec scaled(Vec p, Vec n, Vec shifted, Vec magic) {
#if defined(__AVX512F__)
    static_cast<void>(shifted), static_cast<void>(magic);
    return _mm512_maskz_scalef_ps(kAllLanes, p, n);
#else
    static_cast<void>(n);
    return scaled_by_bits(p, as_int(shifted) - as_int(magic));
#endif
  }
  template <typename F>
  static inline Vec each(Vec x, F&& f) {
    for (int i = 0; i < kLanes; ++i) x[i] = f(x[i]);
    return x;
  }
};
}  // namespace

static inline Vec exp_of(Vec x) { return exp_form<Numbers>(x); }

// 2^t for t <= 128, within 3e-7 of it: infinity from 127.5 on at the latest, and 0 from -127 on at the latest; NaN stays NaN.
#if defined(__AVX512F__)
// 2^floor(t) times a polynomial of degree 5 of what is left, fitted in relative terms; infinities need no bounds.
static inline Vec exp2_of(Vec t) {
  const Vec f = _mm512_maskz_reduce_ps(kAllLanes, t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Vec p = splat(1.877576695e-03f);
  p = fma(p, f, splat(8.989339694e-03f));
  p = fma(p, f, splat(5.582631752e-02f));
  p = fma(p, f, splat(2.401536107e-01f));
  p = fma(p, f, splat(6.931530833e-01f));
  p = fma(p, f, splat(1.0f));
  return _mm512_maskz_scalef_ps(kAllLanes, p, t);
}
#else
static inline Vec exp2_of(Vec t) {
  const Vec magic = splat(12582912.0f);  // as in exp_of
  t = max_of(splat(-127.0f), t);
  const Vec shifted = t + magic;
  const Vec n = shifted - magic;
  const Vec f = t - n;
  Vec p = splat(1.327647129e-03f);
  p = fma(p, f, splat(9.675540961e-03f));
  p = fma(p, f, splat(5.550713092e-02f));
  p = fma(p, f, splat(2.402212024e-01f));
  p = fma(p, f, splat(6.931469440e-01f));
  p = fma(p, f, splat(1.000000119f));
  return p * as_float((as_int(shifted) - as_int(magic) + 127) << 23);
}
#endif

static inline Vec sigmoid_of(Vec x) { return sigmoid_form<Numbers>(x); }

// x / (1 + e^-ax).
static inline Vec swish_of(Vec a, Vec x) {
  Vec t = splat(-1.44269504088896341f) * a * x;
#if !defined(__AVX512F__)
  t = min_of(splat(128.0f), t);
#endif
  return x / (splat(1.0f) + exp2_of(t));
}

// x / 2 (1 + tanh u) is x / (1 + e^-2u).
static inline Vec gelu_tanh_of(Vec x) {
  const Vec cubic = splat(0.0713548162726f) * x * x;  // 2 sqrt(2 / pi) times 0.044715
  const Vec t = x * (cubic + splat(1.59576912160573f));
  return x / (splat(1.0f) + exp_of(-t));
}

// x / 2 (1 + erf(x / sqrt 2)), where erf(x / sqrt 2) is x times a fraction of two polynomials in x^2 up to 5.6, where it is 1 in
// float: fitted with a relative error of 2e-8, 3e-7 as it is computed.
static inline Vec gelu_of(Vec x) {
  const Vec c = min_of(splat(5.6f), max_of(splat(-5.6f), x));
  const Vec z = c * c;
  Vec p = splat(4.459210245e-08f);
  Vec q = splat(1.179595415e-06f);
  p = fma(p, z, splat(1.257898475e-05f));
  q = fma(q, z, splat(7.334131806e-05f));
  p = fma(p, z, splat(3.378491383e-04f));
  q = fma(q, z, splat(1.885467675e-03f));
  p = fma(p, z, splat(9.354641661e-03f));
  q = fma(q, z, splat(2.867740765e-02f));
  p = fma(p, z, splat(6.785770506e-02f));
  q = fma(q, z, splat(2.517133355e-01f));
  p = fma(p, z, splat(7.978845239e-01f));
  q = fma(q, z, splat(1.0f));
  const Vec erf = min_of(splat(1.0f), max_of(splat(-1.0f), c * p / q));
  const Vec half = splat(0.5f) * x;
  return fma(half, erf, half);
}

static inline Vec tanh_of(Vec x) { return tanh_form<Numbers>(x); }

// Odd polynomial below 1, 1 - exp(P(|x|)) with P fitted to log(erfc) from there to 4, where erf is 1 in float. Within 4 units.
static inline Vec erf_of(Vec x) {
  const Vec z = x * x;
  Vec p = splat(7.882497109e-05f);
  p = fma(p, z, splat(-8.018854993e-04f));
  p = fma(p, z, splat(5.189311943e-03f));
  p = fma(p, z, splat(-2.685432880e-02f));
  p = fma(p, z, splat(1.128359746e-01f));
  p = fma(p, z, splat(-3.761262690e-01f));
  p = fma(p, z, splat(1.128379166e+00f));
  const Vec near = x * p;
  const Vec a = min_of(splat(4.0f), abs_of(x));
  Vec q = splat(1.615045072e-06f);
  q = fma(q, a, splat(-4.561102204e-05f));
  q = fma(q, a, splat(5.929505390e-04f));
  q = fma(q, a, splat(-4.741117974e-03f));
  q = fma(q, a, splat(2.636741545e-02f));
  q = fma(q, a, splat(-1.099833025e-01f));
  q = fma(q, a, splat(-6.319313442e-01f));
  q = fma(q, a, splat(-1.130170294e+00f));
  q = fma(q, a, splat(3.041767961e-04f));
  const Vec far = splat(1.0f) - exp_of(q);
  const Vec signed_far = as_float(as_int(far) | (as_int(x) & splat_int(INT32_MIN)));
  return a < splat(1.0f) ? near : signed_far;
}

// log x = e ln 2 + log(1 + f), where x = 2^e (1 + f) and 1 + f lies between the roots of 1/2 and 2; a polynomial fitted with a
// relative error of 6e-9. Within 2 units.
static inline Vec log_of(Vec x) {
  const IntVec tiny = x < splat(1.17549435e-38f);
  const Vec scaled = tiny ? x * splat(8388608.0f) : x;
  const IntVec root = splat_int(0x3f3504f3);
  const IntVec above = reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(scaled) - reinterpret_cast<BitVec>(root));
  const IntVec exponent = (above >> 23) - (tiny & splat_int(23));
  const Vec f = as_float((above & splat_int(0x7fffff)) + root) - splat(1.0f);
  Vec e;
  for (int i = 0; i < kLanes; ++i) e[i] = static_cast<float>(exponent[i]);
  Vec p = splat(-7.859559086e-02f);
  p = fma(p, f, splat(1.288164085e-01f));
  p = fma(p, f, splat(-1.312877111e-01f));
  p = fma(p, f, splat(1.418119377e-01f));
  p = fma(p, f, splat(-1.662455259e-01f));
  p = fma(p, f, splat(2.000228617e-01f));
  p = fma(p, f, splat(-2.500081044e-01f));
  p = fma(p, f, splat(3.333331673e-01f));
  const Vec z = f * f;
  Vec small = p * f * z;
  small = fma(e, splat(1.428606820309417e-6f), small);
  small = fma(splat(-0.5f), z, small);
  const Vec y = fma(e, splat(0.693145751953125f), f + small);
  const Vec infinite = splat(__builtin_inff());
  const Vec odd = x == zero() ? -infinite : x < zero() ? splat(__builtin_nanf("")) : x;  // infinity, NaN
  return x > zero() && x < infinite ? y : odd;
}

// Sine or cosine within 2 units: x = k pi/2 + r with pi/2 in three floats, whose multiples are subtracted without roundings that
// count, and polynomials of r up to pi/4. From 2^17 on, or where multiply-adds round twice, the C library's. Each lane is computed
// by its own element alone: a large neighbour changes no bit.
template <bool Cosine>
static inline Vec sine_of(Vec x) {
  const auto by_library = [](float v) { return Cosine ? __builtin_cosf(v) : __builtin_sinf(v); };
#if defined(__AVX2__) || defined(__aarch64__)
  const Vec magic = splat(12582912.0f);  // as in exp_of
  const Vec shifted = fma(x, splat(0.636619772367581f), magic);
  const Vec k = shifted - magic;
  Vec r = fma(k, splat(-1.57079637050628662109375f), x);
  r = fma(k, splat(4.371138828673793e-8f), r);
  r = fma(k, splat(1.7151245100058819e-15f), r);
  const IntVec quadrant = as_int(shifted) + (Cosine ? 1 : 0);
  const Vec z = r * r;
  Vec s = splat(-1.951723363e-04f);
  s = fma(s, z, splat(8.332177677e-03f));
  s = fma(s, z, splat(-1.666665494e-01f));
  s = fma(s * z, r, r);
  Vec c = splat(2.443308091e-05f);
  c = fma(c, z, splat(-1.388731560e-03f));
  c = fma(c, z, splat(4.166664567e-02f));
  c = fma(c * z, z, fma(splat(-0.5f), z, splat(1.0f)));
  const Vec near = (quadrant & 1) != 0 ? c : s;
  Vec y = as_float(as_int(near) ^ ((quadrant & 2) << 30));
  if (all_lanes(abs_of(x) < splat(131072.0f))) return y;
  for (int i = 0; i < kLanes; ++i) {
    if (!(__builtin_fabsf(x[i]) < 131072.0f)) y[i] = by_library(x[i]);
  }
  return y;
#else
  for (int i = 0; i < kLanes; ++i) x[i] = by_library(x[i]);
  return x;
#endif
}

}  // namespace evn::EVN_ISA
