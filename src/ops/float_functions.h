// e^x, the sigmoid and the tangent of float32 as kernels compute them, for any form of numbers N, so that a reference that has to
// agree with vectors to the last bit runs the same operations on one float. N has a type V (a float or a vector of them) and
//   splat(f), fma(a, b, c), rounded once; min_of(bound, x) and max_of(bound, x), which are x where it is NaN; scaled(p, n, shifted,
//   magic), which is p 2^n where shifted = n + magic.
// Bounds in units in the last place are what tests/backends/cpu/elementwise/vector_math_test.cc finds over all floats.
#pragma once

#include <cmath>
#include <cstdint>

namespace evn {

// e^x within 2 units: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor's series of degree 7 in r, and a scale of 2^n, so that subnormal
// results and n = 128 come out right. Overflows to inf, underflows to 0, NaN stays NaN.
template <typename N>
static inline typename N::V exp_form(typename N::V x) {
  using V = typename N::V;
  const V magic = N::splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = N::min_of(N::splat(89.0f), N::max_of(N::splat(-105.0f), x));
  const V shifted = N::fma(x, N::splat(1.44269504088896341f), magic);
  const V n = shifted - magic;
  V r = N::fma(n, N::splat(-0.693145751953125f), x);
  r = N::fma(n, N::splat(-1.428606820309417e-6f), r);
  V p = N::splat(1.0f / 5040);
  p = N::fma(p, r, N::splat(1.0f / 720));
  p = N::fma(p, r, N::splat(1.0f / 120));
  p = N::fma(p, r, N::splat(1.0f / 24));
  p = N::fma(p, r, N::splat(1.0f / 6));
  p = N::fma(p, r, N::splat(0.5f));
  p = N::fma(p, r, N::splat(1.0f));
  p = N::fma(p, r, N::splat(1.0f));
  return N::scaled(p, n, shifted, magic);
}

// Within 4 units; 0 below the smallest normal number.
template <typename N>
static inline typename N::V sigmoid_form(typename N::V x) {
  return N::splat(1.0f) / (N::splat(1.0f) + exp_form<N>(-x));
}

// x times a fraction of two polynomials in x^2 up to 9.02, where tanh is 1 in float: fitted with a relative error of 2e-8, within
// 6 units as it is computed.
template <typename N>
static inline typename N::V tanh_form(typename N::V x) {
  using V = typename N::V;
  const V c = N::min_of(N::splat(9.02f), N::max_of(N::splat(-9.02f), x));
  const V z = c * c;
  V p = N::splat(1.331906859e-08f);
  V q = N::splat(7.762048405e-07f);
  p = N::fma(p, z, N::splat(2.058358540e-05f));
  q = N::fma(q, z, N::splat(3.283107989e-04f));
  p = N::fma(p, z, N::splat(3.494046178e-03f));
  q = N::fma(q, z, N::splat(2.587112332e-02f));
  p = N::fma(p, z, N::splat(1.337972964e-01f));
  q = N::fma(q, z, N::splat(4.671304495e-01f));
  p = N::fma(p, z, N::splat(9.999999792e-01f));
  q = N::fma(q, z, N::splat(1.0f));
  return N::min_of(N::splat(1.0f), N::max_of(N::splat(-1.0f), c * p / q));
}

// p 2^n in two factors, each of which is a normal number.
template <typename V, typename Bits>
static inline V scaled_by_bits(V p, Bits exponent) {
  const Bits half = exponent >> 1;
  return p * __builtin_bit_cast(V, (half + 127) << 23) * __builtin_bit_cast(V, (exponent - half + 127) << 23);
}

// One float.
struct FloatNumber {
  using V = float;
  static float splat(float x) { return x; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float max_of(float bound, float x) { return bound > x ? bound : x; }
  static float min_of(float bound, float x) { return bound < x ? bound : x; }
  static float abs_of(float x) { return std::fabs(x); }
  static float scaled(float p, float, float shifted, float magic) {
    return scaled_by_bits(p, __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, magic));
  }
  template <typename F>
  static float each(float x, F&& f) {
    return f(x);
  }
};

}  // namespace evn
