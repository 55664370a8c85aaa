#include "backends/cpu/training/activation_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_activation::Slope;

// What e^(-x^2 / 2) / sqrt(2 pi) and its integral give.
inline Vec gelu_slope(Vec x) {
  const Vec half = fma(splat(0.5f), erf_of(x * splat(0.70710678118654752f)), splat(0.5f));
  const Vec bell = splat(0.39894228040143268f) * exp_of(splat(-0.5f) * x * x);
  return fma(x, bell, half);
}

// (1 + tanh u) / 2 is the sigmoid of 2 u, whose small values keep their digits. Beyond 16 the slope is 0 or 1 in float, and its
// factors would overflow.
inline Vec gelu_tanh_slope(Vec x) {
  x = min_of(splat(16.0f), max_of(splat(-16.0f), x));
  const Vec z = x * x;
  const Vec half = sigmoid_of(x * fma(splat(0.0713548162f), z, splat(1.5957691216f)));
  const Vec du = fma(splat(0.2140644488f), z, splat(1.5957691216f));
  return fma(half, x * (splat(1.0f) - half) * du, half);
}

template <Slope S>
inline Vec gradient_of(Vec v, Vec dy) {
  if constexpr (S == Slope::kRelu) {
    return v > zero() ? dy : zero();
  } else if constexpr (S == Slope::kSigmoid) {
    return dy * (v - v * v);
  } else if constexpr (S == Slope::kTanh) {
    return dy * (splat(1.0f) - v * v);
  } else if constexpr (S == Slope::kHardSwish) {
    const Vec inside = dy * fma(v, splat(1.0f / 3.0f), splat(0.5f));
    return v >= splat(3.0f) ? dy : v > splat(-3.0f) ? inside : zero();
  } else if constexpr (S == Slope::kErf) {
    return dy * (splat(1.12837916709551257f) * exp_of(-v * v));
  } else if constexpr (S == Slope::kGelu) {
    return dy * gelu_slope(v);
  } else {
    return dy * gelu_tanh_slope(v);
  }
}

template <Slope S>
void map(const float* v, const float* dy, float* dx, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dx + i, gradient_of<S>(load(v + i), load(dy + i)));
  if (i < n) store_n(dx + i, gradient_of<S>(load_n(v + i, n - i), load_n(dy + i, n - i)), n - i);
}

void gradient(Slope slope, const float* v, const float* dy, float* dx, std::int64_t n) {
  switch (slope) {
    case Slope::kRelu: return map<Slope::kRelu>(v, dy, dx, n);
    case Slope::kSigmoid: return map<Slope::kSigmoid>(v, dy, dx, n);
    case Slope::kTanh: return map<Slope::kTanh>(v, dy, dx, n);
    case Slope::kHardSwish: return map<Slope::kHardSwish>(v, dy, dx, n);
    case Slope::kErf: return map<Slope::kErf>(v, dy, dx, n);
    case Slope::kGelu: return map<Slope::kGelu>(v, dy, dx, n);
    case Slope::kGeluTanh: return map<Slope::kGeluTanh>(v, dy, dx, n);
  }
}

}  // namespace

extern const simd_activation::Loops loops_activation;
const simd_activation::Loops loops_activation = {.gradient = gradient};

}  // namespace evn::EVN_ISA
