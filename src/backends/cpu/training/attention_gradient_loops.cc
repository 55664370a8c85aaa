#include "backends/cpu/training/attention_gradient_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_attention_gradient::Query;

// Whether lanes of places t, t + 1, ... lie in [low, high).
inline IntVec lies_in(std::int64_t t, std::int64_t low, std::int64_t high) {
  const auto bound = [&](std::int64_t at) {
    const std::int64_t most = at - t < 0 ? 0 : at - t > kLanes ? kLanes : at - t;
    return splat_int(static_cast<std::int32_t>(most));
  };
  IntVec lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return (lane >= bound(low)) & (lane < bound(high));
}

inline Vec hidden() { return splat(-__builtin_inff()); }

// The score, with what is added to it; minus infinity where it is hidden.
inline Vec biased(const Query& q, Vec score, std::int64_t t, std::int64_t n) {
  if (q.mask != nullptr) score = score + load_some(q.mask + t, n);
  if (q.bool_mask != nullptr) {
    Vec shown = zero();
    for (std::int64_t i = 0; i < kLanes && i < n; ++i) shown[i] = q.bool_mask[t + i] != 0 ? 1.0f : 0.0f;
    score = shown > zero() ? score : hidden();
  }
  if (t >= q.low && t + kLanes <= q.high) return score;
  return lies_in(t, q.low, q.high) ? score : hidden();
}

void weigh(const Query& query, float* scores, float* slopes) {
  const Query q = query;
  Vec top = hidden();
  for (std::int64_t t = 0; t < q.keys; t += kLanes) {
    const std::int64_t n = q.keys - t;
    Vec x = load_some(scores + t, n) * splat(q.scale);
    if (q.softcap != 0) {
      const Vec bent = tanh_of(x / splat(q.softcap));
      store_some(slopes + t, splat(1.0f) - bent * bent, n);
      x = splat(q.softcap) * bent;
    }
    x = biased(q, x, t, n);
    top = max_of(top, x);
    store_some(scores + t, x, n);
  }
  const float most = max_lanes(top);
  const bool is_blind = !(most > -__builtin_inff()) && most == most;
  Vec sum = zero();
  for (std::int64_t t = 0; t < q.keys; t += kLanes) {
    const std::int64_t n = q.keys - t;
    Vec e = is_blind ? zero() : exp_of(load_some(scores + t, n) - splat(most));
    if (n < kLanes) e = lies_in(0, 0, n) ? e : zero();
    sum = sum + e;
    store_some(scores + t, e, n);
  }
  const Vec inverse = splat(is_blind ? 0.0f : 1 / sum_lanes(sum));
  for (std::int64_t t = 0; t < q.keys; t += kLanes) store_some(scores + t, load_some(scores + t, q.keys - t) * inverse, q.keys - t);
}

void back(const Query& query, const float* weights, const float* slopes, float* dweights, float* dmask) {
  const Query q = query;
  Vec sum = zero();
  for (std::int64_t t = 0; t < q.keys; t += kLanes) {
    sum = fma(load_some(weights + t, q.keys - t), load_some(dweights + t, q.keys - t), sum);
  }
  const Vec along = splat(sum_lanes(sum)), scale = splat(q.scale);
  for (std::int64_t t = 0; t < q.keys; t += kLanes) {
    const std::int64_t n = q.keys - t;
    const Vec by_score = load_some(weights + t, n) * (load_some(dweights + t, n) - along);
    if (dmask != nullptr) store_some(dmask + t, load_some(dmask + t, n) + by_score, n);
    const Vec by_product = by_score * scale;
    store_some(dweights + t, q.softcap != 0 ? by_product * load_some(slopes + t, n) : by_product, n);
  }
}

}  // namespace

extern const simd_attention_gradient::Loops loops_attention_gradient;
const simd_attention_gradient::Loops loops_attention_gradient = {weigh, back};

}  // namespace evn::EVN_ISA
