// Trigonometric and hyperbolic functions and their inverses, vectors of floats. Included by *_loops.cc only. Polynomials are fitted
// in relative terms; bounds in units in the last place are what tests/backends/cpu/elementwise/vector_math_test.cc finds over all
// floats.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {

static inline Vec signed_as(Vec magnitude, Vec sign) {
  return as_float((as_int(magnitude) & splat_int(INT32_MAX)) | (as_int(sign) & splat_int(INT32_MIN)));
}

// Within 5 units.
static inline Vec tan_of(Vec x) { return sine_of<false>(x) / sine_of<true>(x); }

// Within 3 units: atan(a) is pi/2 - atan(1/a) above tan(3 pi/8), and pi/4 + atan((a - 1) / (a + 1)) above tan(pi/8).
static inline Vec atan_of(Vec x) {
  const Vec a = abs_of(x), one = splat(1.0f);
  const IntVec far = a > splat(2.414213562f), near = a <= splat(0.4142135624f);
  const Vec above = far ? -one : near ? a : a - one;
  const Vec below = far ? a : near ? one : a + one;
  const Vec offset = far ? splat(1.570796327f) : near ? zero() : splat(0.7853981634f);
  const Vec t = above / below, z = t * t;
  Vec p = splat(-6.466833286e-02f);
  p = fma(p, z, splat(1.074885747e-01f));
  p = fma(p, z, splat(-1.426450700e-01f));
  p = fma(p, z, splat(1.999955949e-01f));
  p = fma(p, z, splat(-3.333333186e-01f));
  return signed_as(offset + fma(p * z, t, t), x);
}

// asin(a) / a - 1 for z = a^2 <= 1/4.
static inline Vec asin_series(Vec z) {
  Vec p = splat(3.832830383e-02f);
  p = fma(p, z, splat(2.643336365e-02f));
  p = fma(p, z, splat(4.502021498e-02f));
  p = fma(p, z, splat(7.498761621e-02f));
  p = fma(p, z, splat(1.666667314e-01f));
  return p * z;
}

// Within 4 units: above 1/2, asin(a) is pi/2 - 2 asin(sqrt((1 - a) / 2)).
template <bool Cosine>
static inline Vec inverse_sine_of(Vec x) {
  const Vec a = abs_of(x);
  const IntVec near = a <= splat(0.5f);
  const Vec z = near ? a * a : splat(0.5f) * (splat(1.0f) - a);
  const Vec r = near ? a : sqrt_of(z);
  const Vec s = fma(asin_series(z), r, r);  // asin of a, or half of acos(a)
  const Vec half_pi = splat(1.570796327f);
  if (!Cosine) return signed_as(near ? s : half_pi - (s + s), x);
  const Vec back = x < zero() ? splat(3.141592654f) - (s + s) : s + s;
  return near ? half_pi - signed_as(s, x) : back;
}

// e^|x| / 2 without an overflow before its own.
static inline Vec half_exp_of(Vec a) {
  const Vec root = exp_of(splat(0.5f) * a);
  return splat(0.5f) * root * root;
}

// Within 6 units.
static inline Vec sinh_of(Vec x) {
  const Vec a = abs_of(x), z = x * x;
  Vec p = splat(2.806300620e-06f);
  p = fma(p, z, splat(1.983809891e-04f));
  p = fma(p, z, splat(8.333339687e-03f));
  p = fma(p, z, splat(1.666666665e-01f));
  const Vec half = half_exp_of(a);
  return a < splat(1.0f) ? fma(p * z, x, x) : signed_as(half - splat(0.25f) / half, x);
}

// Within 6 units.
static inline Vec cosh_of(Vec x) {
  const Vec half = half_exp_of(abs_of(x));
  return half + splat(0.25f) / half;
}

// log(1 + x) of x >= 0: what 1 + x loses of x is made good by the quotient. Where `large`, log(2 l).
static inline Vec log1p_or_log_of(Vec x, IntVec large, Vec l) {
  const Vec u = splat(1.0f) + x;
  const Vec kept = u - splat(1.0f);
  const Vec log = log_of(large ? l : u);
  return large ? log + splat(0.6931471806f) : kept == zero() ? x : log * (x / kept);
}

// Within 5 units.
static inline Vec asinh_of(Vec x) {
  const Vec a = abs_of(x), z = a * a, one = splat(1.0f);
  return signed_as(log1p_or_log_of(a + z / (one + sqrt_of(z + one)), a > splat(67108864.0f), a), x);
}

// Within 5 units.
static inline Vec acosh_of(Vec x) {
  const Vec t = x - splat(1.0f);
  const Vec y = log1p_or_log_of(t + sqrt_of(t * (t + splat(2.0f))), x > splat(67108864.0f), x);
  return x < splat(1.0f) ? splat(__builtin_nanf("")) : y;
}

// Within 5 units.
static inline Vec atanh_of(Vec x) {
  const Vec a = abs_of(x), t = (a + a) / (splat(1.0f) - a);
  return signed_as(splat(0.5f) * log1p_or_log_of(t, t > splat(67108864.0f), splat(0.5f) * t), x);
}

}  // namespace evn::EVN_ISA
