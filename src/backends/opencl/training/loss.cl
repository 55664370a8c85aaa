// SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss, and their derivatives. x is seen as [outer, classes, inner], a place is one of
// outer * inner. A target that is no class, which no kernel can report, makes the loss and the gradients of its place NaN.

#include "sums.cl"

typedef struct {
  long places, classes, inner;
  long chunk;        // places of one work item
  long ignored;      // the target whose weight is 0
  int wide;          // targets are 64 bits wide
  int softmax;       // else x has logarithms of probabilities
  int has_weights;
  int mean, single;  // the reduction is mean; it is mean or sum
  int log_prob;      // output 1 is wanted
} Loss;

static inline long target_at(global const int* targets, long i, const Loss* p) {
  return p->wide ? ((global const long*)targets)[i] : (long)targets[i];
}

static inline float weight_at(long target, global const float* weights, const Loss* p) {
  if (target == p->ignored) return 0.0f;
  if (target < 0 || target >= p->classes) return NAN;
  return p->has_weights ? weights[target] : 1.0f;
}

static inline VF load_n(global const float* p, long left, float other) {
  if (left >= EVN_LANES) return LOADV(p);
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = i < left ? p[i] : other;
  return LOADV(lane);
}

// The largest of a line, and the sum of what exp makes of the rest of each: of a line that lies side by side, and of EVN_LANES lines at
// once, `inner` apart.
static inline void softmax_of_line(global const float* x, long classes, float* top, float* sum) {
  VF most = (VF)-INFINITY;
  for (long k = 0; k < classes; k += EVN_LANES) most = fmax(most, load_n(x + k, classes - k, -INFINITY));
  float lane[EVN_LANES];
  STOREV(most, lane);
  for (int i = 1; i < EVN_LANES; ++i) lane[0] = fmax(lane[0], lane[i]);
  *top = lane[0];
  Sums all;
  start(&all);
  for (long k = 0; k < classes; k += EVN_LANES) add(&all, exp(load_n(x + k, classes - k, -INFINITY) - *top));
  *sum = sum_of_lanes(total(&all));
}

static inline void softmax_of_lines(global const float* x, long classes, long inner, long left, VF* top, VF* sum) {
  *top = (VF)-INFINITY;
  for (long k = 0; k < classes; ++k) *top = fmax(*top, load_n(x + k * inner, left, 0.0f));
  Sums all;
  start(&all);
  for (long k = 0; k < classes; ++k) add(&all, exp(load_n(x + k * inner, left, 0.0f) - *top));
  *sum = total(&all);
}

// The places of a run: up to EVN_LANES of one image where lines lie beside each other, else one. Its softmaxes' numbers, by lane.
static inline long softmax_run(global const float* from, long place, long end, const Loss* p, float* top, float* sum) {
  if (p->inner == 1) {
    if (p->softmax) softmax_of_line(from, p->classes, top, sum);
    return 1;
  }
  const long count = min(min((long)EVN_LANES, end - place), p->inner - place % p->inner);
  if (p->softmax) {
    VF tops, sums;
    softmax_of_lines(from, p->classes, p->inner, count, &tops, &sums);
    STOREV(tops, top);
    STOREV(sums, sum);
  }
  return count;
}

// The sums of losses and of weights of each piece of the places; single losses where they are not reduced. Grid: pieces.
EVN_KERNEL void loss_of_places(global const float* x, ulong x0, global const int* targets, ulong targets0, global const float* weights,
                               ulong weights0, global float* sums, ulong sums0, global float* y, ulong y0, global float* logs, ulong logs0,
                               Loss p) {
  const long piece = get_global_id(0), begin = piece * p.chunk, end = min(begin + p.chunk, p.places);
  if (begin >= end) return;
  targets += targets0;
  Sum loss, weight_sum;
  start(&loss);
  start(&weight_sum);
  float top[EVN_LANES], sum[EVN_LANES];
  for (long place = begin; place < end;) {
    const long at = place / p.inner * p.classes * p.inner + place % p.inner;
    global const float* from = x + x0 + at;
    const long count = softmax_run(from, place, end, &p, top, sum);
    for (long i = 0; i < count; ++i) {
      const float shift = p.softmax ? log((VF)sum[i]).s0 : 0.0f, most = p.softmax ? top[i] : 0.0f;
      const long target = target_at(targets, place + i, &p);
      const float weight = weight_at(target, weights + weights0, &p);
      float value = 0.0f;
      if (weight != weight) value = NAN;
      else if (target != p.ignored) value = weight * ((most - from[target * p.inner + i]) + shift);
      add(&loss, value);
      add(&weight_sum, weight);
      if (!p.single) y[y0 + place + i] = value;
      for (long k = 0; p.log_prob && k < p.classes; ++k) logs[logs0 + at + k * p.inner + i] = (from[k * p.inner + i] - most) - shift;
    }
    place += count;
  }
  sums[sums0 + 2 * piece] = total(&loss);
  sums[sums0 + 2 * piece + 1] = total(&weight_sum);
}

// One work item: the pieces in their order.
EVN_KERNEL void finish_loss(global const float* sums, ulong sums0, global float* y, ulong y0, long pieces, int mean) {
  if (get_global_id(0) != 0) return;
  Sum loss, weight;
  start(&loss);
  start(&weight);
  for (long i = 0; i < pieces; ++i) {
    add(&loss, sums[sums0 + 2 * i]);
    add(&weight, sums[sums0 + 2 * i + 1]);
  }
  y[y0] = mean ? total(&loss) / total(&weight) : total(&loss);
}

// The sum of weights of each piece. Grid: pieces.
EVN_KERNEL void loss_weights(global const int* targets, ulong targets0, global const float* weights, ulong weights0, global float* sums,
                             ulong sums0, Loss p) {
  const long piece = get_global_id(0), begin = piece * p.chunk, end = min(begin + p.chunk, p.places);
  if (begin >= end) return;
  Sum sum;
  start(&sum);
  for (long i = begin; i < end; ++i) add(&sum, weight_at(target_at(targets + targets0, i, &p), weights + weights0, &p));
  sums[sums0 + piece] = total(&sum);
}

// Grid: pieces.
EVN_KERNEL void loss_gradient(global const float* x, ulong x0, global const int* targets, ulong targets0, global const float* dy, ulong dy0,
                              global const float* weights, ulong weights0, global const float* sums, ulong sums0, global float* dx,
                              ulong dx0, long pieces, Loss p) {
  const long begin = (long)get_global_id(0) * p.chunk, end = min(begin + p.chunk, p.places);
  if (begin >= end) return;
  targets += targets0;
  float divisor = 1.0f;
  if (p.mean) {
    Sum all;
    start(&all);
    for (long i = 0; i < pieces; ++i) add(&all, sums[sums0 + i]);
    divisor = total(&all);
  }
  float top[EVN_LANES], sum[EVN_LANES];
  for (long place = begin; place < end;) {
    const long at = place / p.inner * p.classes * p.inner + place % p.inner;
    global const float* from = x + x0 + at;
    global float* to = dx + dx0 + at;
    const long count = softmax_run(from, place, end, &p, top, sum);
    float factor[EVN_LANES];
    for (long i = 0; i < EVN_LANES; ++i) factor[i] = 0.0f;
    for (long i = 0; i < count; ++i) {
      const float weight = weight_at(target_at(targets, place + i, &p), weights + weights0, &p);
      factor[i] = weight == 0.0f ? 0.0f : weight * dy[dy0 + (p.single ? 0 : place + i)] / divisor;
    }
    if (p.inner == 1) {
      for (long k = 0; k < p.classes; k += EVN_LANES) {
        VF v = (VF)0.0f;
        if (p.softmax) v = exp(load_n(from + k, p.classes - k, -INFINITY) - top[0]) * (factor[0] / sum[0]);
        store_lanes(factor[0] == 0.0f ? (VF)0.0f : factor[0] != factor[0] ? (VF)NAN : v, to + k, 0, (int)min(p.classes - k, (long)EVN_LANES));
      }
    } else {
      const VF f = LOADV(factor), tops = LOADV(top), share = p.softmax ? f / LOADV(sum) : (VF)0.0f;
      for (long k = 0; k < p.classes; ++k) {
        VF v = (VF)0.0f;
        if (p.softmax) v = exp(load_n(from + k * p.inner, count, 0.0f) - tops) * share;
        v = f == (VF)0.0f ? (VF)0.0f : f != f ? (VF)NAN : v;
        store_lanes(v, to + k * p.inner, 0, (int)count);
      }
    }
    for (long i = 0; i < count; ++i) {
      const long target = target_at(targets, place + i, &p);
      if (factor[i] == factor[i] && factor[i] != 0.0f) to[target * p.inner + i] -= factor[i];
    }
    place += count;
  }
}
