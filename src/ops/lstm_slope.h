// Slopes of the activations of recurrent layers, in float32, for any form of numbers (ops/lstm_cell.h). At a corner the slope is
// that of the left side; HardSigmoid has 0 at both of its corners.
#pragma once

#include "ops/lstm_cell.h"

namespace evn {

// At x, where the activation is y. The usual two first. Not inlined, as cells call it four times.
template <typename N>
__attribute__((noinline)) static typename N::V slope_form(const Activation& f, typename N::V x, typename N::V y) {
  using V = typename N::V;
  const V none = N::splat(0), one = N::splat(1.0f), a = N::splat(f.a), b = N::splat(f.b);
  if (f.kind == ActivationKind::kSigmoid) return y - y * y;
  if (f.kind == ActivationKind::kTanh) return one - y * y;
  switch (f.kind) {
    case ActivationKind::kRelu: return x > none ? one : none;
    case ActivationKind::kAffine: return a;
    case ActivationKind::kLeakyRelu: return x > none ? one : a;
    case ActivationKind::kThresholdedRelu: return x > a ? one : none;
    case ActivationKind::kScaledTanh: {
      const V t = tanh_form<N>(b * x);
      return a * b * (one - t * t);
    }
    case ActivationKind::kHardSigmoid: {
      const V inside = N::fma(a, x, b);
      const V above = inside > none ? a : none;
      return inside < one ? above : none;
    }
    case ActivationKind::kElu: return x > none ? one : a * exp_form<N>(x);
    case ActivationKind::kSoftsign: {
      const V t = one + N::abs_of(x);
      return one / (t * t);
    }
    case ActivationKind::kSoftplus: return sigmoid_form<N>(x);
    default: return one;
  }
}

// An activation of a bounded x, and its slope: 0 beyond the bounds.
template <typename N>
struct ActivationAt {
  typename N::V y, slope;
};
template <typename N>
static inline ActivationAt<N> activation_at(const Activation& f, float clip, typename N::V x) {
  using V = typename N::V;
  const V bounded = N::min_of(N::splat(clip), N::max_of(N::splat(-clip), x));
  const V y = activation_form<N>(f, bounded);
  const V slope = slope_form<N>(f, bounded, y);
  return {y, N::abs_of(x) > N::splat(clip) ? N::splat(0) : slope};
}

}  // namespace evn
