// What LSTM does with the sums of its gates, in float32, and the activations of recurrent layers: written once for any form of
// numbers (ops/float_functions.h), one float of a reference or a vector of a kernel.
#pragma once

#include "ops/float_functions.h"
#include "ops/recurrent_activation.h"

namespace evn {

// The usual two first: they are what cells spend their time on. Not inlined, as cells call it five times.
template <typename N>
__attribute__((noinline)) static typename N::V activation_form(const Activation& f, typename N::V x) {
  using V = typename N::V;
  if (f.kind == ActivationKind::kSigmoid) return sigmoid_form<N>(x);
  if (f.kind == ActivationKind::kTanh) return tanh_form<N>(x);
  const V none = N::splat(0), a = N::splat(f.a), b = N::splat(f.b);
  switch (f.kind) {
    case ActivationKind::kRelu: return N::max_of(none, x);
    case ActivationKind::kAffine: return N::fma(a, x, b);
    case ActivationKind::kLeakyRelu: return x < none ? a * x : x;
    case ActivationKind::kThresholdedRelu: return x > a ? x : none;
    case ActivationKind::kScaledTanh: return a * tanh_form<N>(b * x);
    case ActivationKind::kHardSigmoid: return N::min_of(N::splat(1.0f), N::max_of(none, N::fma(a, x, b)));
    case ActivationKind::kElu: return N::each(x, [&](float y) { return y < 0 ? f.a * __builtin_expm1f(y) : y; });
    case ActivationKind::kSoftsign: return x / (N::splat(1.0f) + N::abs_of(x));
    case ActivationKind::kSoftplus:
      return N::each(
          x, [](float y) { return y > 0 ? y + __builtin_log1pf(__builtin_expf(-y)) : __builtin_log1pf(__builtin_expf(y)); });
    default: return x;
  }
}

// x within -clip and clip.
template <typename N>
static inline typename N::V clipped_activation_form(const Activation& f, float clip, typename N::V x) {
  return activation_form<N>(f, N::min_of(N::splat(clip), N::max_of(N::splat(-clip), x)));
}

struct LstmFunctions {
  Activation f, g, h;
  float clip;  // bound of the inputs of f and g; infinite: none
  bool input_forget;
};

// The sums of the gates, and what peepholes weigh; without them `has_peepholes` is false.
template <typename V>
struct LstmSums {
  V i, o, f, c;
  bool has_peepholes;
  V p_i, p_o, p_f;
};

// Takes c a step further and returns h.
template <typename N>
static inline typename N::V lstm_form(const LstmFunctions& k, const LstmSums<typename N::V>& s, typename N::V* c) {
  using V = typename N::V;
  const V before = *c;
  const V i = clipped_activation_form<N>(k.f, k.clip, s.has_peepholes ? N::fma(s.p_i, before, s.i) : s.i);
  const V f = k.input_forget ? N::splat(1.0f) - i
                             : clipped_activation_form<N>(k.f, k.clip, s.has_peepholes ? N::fma(s.p_f, before, s.f) : s.f);
  const V now = N::fma(f, before, i * clipped_activation_form<N>(k.g, k.clip, s.c));
  *c = now;
  return clipped_activation_form<N>(k.f, k.clip, s.has_peepholes ? N::fma(s.p_o, now, s.o) : s.o) * activation_form<N>(k.h, now);
}

}  // namespace evn
