// Steps of optimizers and norms of gradients. ops/optimizer_step.cc says what they compute.

#include "sums.cl"

enum { kPlain, kMomentum, kAdam, kAdagrad, kRmsprop };

typedef struct {
  int kind;
  int nesterov, centered;
  int decoupled;            // adamw: the parameter decays by itself
  float momentum;           // what is left of it
  float new_momentum;       // what is added of the gradient
  float new_average;        // 1 - beta1
  float old_square, new_square;
  float epsilon;
  float log_beta1, log_beta2;
  float rate_decay;
} Rule;

// Numbers of the step, of the rates in memory.
typedef struct {
  float rate, decay, weight_decay, scale, clip, second;
  bool first;
} Numbers;

static inline Numbers numbers_of(global const float* rates, const Rule* r) {
  Numbers n;
  const float step = rates[4];
  n.rate = rates[0];
  n.weight_decay = r->decoupled ? 0.0f : rates[1];
  n.decay = r->decoupled ? fma(-rates[0], rates[1], 1.0f) : 1.0f;
  n.scale = rates[2];
  n.clip = rates[3] > 0.0f ? rates[3] : INFINITY;
  n.second = 1.0f;
  n.first = step <= 1.0f;
  if (r->kind == kAdam) {  // 1 - beta^step has few digits where beta is near 1; this has all
    n.rate /= -expm1(step * r->log_beta1);
    n.second = 1.0f / sqrt(-expm1(step * r->log_beta2));
  } else if (r->kind == kAdagrad) {
    n.rate /= fma(step - 1.0f, r->rate_decay, 1.0f);
  }
  return n;
}

// What the rate multiplies. NaN of a gradient stays.
static inline VF descent(const Rule* r, const Numbers* n, VF g, VF* k0, VF* k1, VF* k2) {
  switch (r->kind) {
    case kMomentum:
      *k0 = n->first ? g : fma((VF)r->momentum, *k0, r->new_momentum * g);
      return r->nesterov ? fma((VF)r->momentum, *k0, g) : *k0;
    case kAdam:
      *k0 = fma((VF)r->new_average, g - *k0, *k0);
      *k1 = fma((VF)r->old_square, *k1, r->new_square * g * g);
      return *k0 / fma(sqrt(*k1), (VF)n->second, (VF)r->epsilon);
    case kAdagrad:
      *k0 = fma(g, g, *k0);
      return g / (sqrt(*k0) + r->epsilon);
    case kRmsprop: {
      const bool has_momentum = r->momentum != 0.0f;
      *k0 = fma((VF)r->old_square, *k0, r->new_square * g * g);
      VF variance = *k0;
      if (r->centered) {
        VF average = has_momentum ? *k2 : *k1;
        average = fma((VF)r->new_square, g - average, average);
        variance = fmax(fma(-average, average, variance), (VF)0.0f);
        if (has_momentum) *k2 = average;
        else *k1 = average;
      }
      const VF update = g / (sqrt(variance) + r->epsilon);
      if (!has_momentum) return update;
      *k1 = fma((VF)r->momentum, *k1, update);
      return *k1;
    }
    default: return g;
  }
}

static inline VF load_n(global const float* p, long left) {
  if (left >= EVN_LANES) return LOADV(p);
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = i < left ? p[i] : 0.0f;
  return LOADV(lane);
}

// One tensor and what belongs to it. Outputs may be the inputs. Grid: pieces of `chunk` elements, a multiple of EVN_LANES.
EVN_KERNEL void optimizer_step(global const float* rates, ulong rates0, global const uchar* apply, ulong apply0, global const float* x,
                               ulong x0, global const float* g, ulong g0, global const float* k0, ulong k00, global const float* k1,
                               ulong k10, global const float* k2, ulong k20, global float* to_x, ulong to_x0, global float* to_k0,
                               ulong to_k00, global float* to_k1, ulong to_k10, global float* to_k2, ulong to_k20, long n, long chunk,
                               int kept, Rule r) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  const bool applies = apply[apply0 * 4] != 0;
  const Numbers s = numbers_of(rates + rates0, &r);
  for (long i = begin; i < end; i += EVN_LANES) {
    const long left = end - i;
    const int lanes = (int)min(left, (long)EVN_LANES);
    VF v = load_n(x + x0 + i, left);
    VF a = kept > 0 ? load_n(k0 + k00 + i, left) : (VF)0.0f;
    VF b = kept > 1 ? load_n(k1 + k10 + i, left) : (VF)0.0f;
    VF c = kept > 2 ? load_n(k2 + k20 + i, left) : (VF)0.0f;
    if (applies) {
      VF d = load_n(g + g0 + i, left) * s.scale;
      d = d < (VF)-s.clip ? (VF)-s.clip : d > (VF)s.clip ? (VF)s.clip : d;
      d = fma((VF)s.weight_decay, v, d);
      const VF update = descent(&r, &s, d, &a, &b, &c);
      v = fma((VF)-s.rate, update, v * s.decay);
    }
    store_lanes(v, to_x + to_x0 + i, 0, lanes);
    if (kept > 0) store_lanes(a, to_k0 + to_k00 + i, 0, lanes);
    if (kept > 1) store_lanes(b, to_k1 + to_k10 + i, 0, lanes);
    if (kept > 2) store_lanes(c, to_k2 + to_k20 + i, 0, lanes);
  }
}

#define EVN_LARGE 0x1p96f     // a larger sum of squares is computed again, of smaller numbers
#define EVN_SMALLER 0x1p-84f  // factor of the smaller numbers: 2^40 squares of the largest of them have a finite sum

// Returns the sum of the squares of x * scale * smaller for the elements from begin to end. Adds 0 to `wrong`, or NaN if an element is not
// finite.
static inline float sum_of_squares(global const float* x, long begin, long end, float scale, float smaller, float* wrong) {
  Sums a, b;
  start(&a);
  start(&b);
  VF bad = (VF)0.0f;
  long i = begin;
  for (; i + 2 * EVN_LANES <= end; i += 2 * EVN_LANES) {
    const VF v = LOADV(x + i), w = LOADV(x + i + EVN_LANES);
    const VF p = v * scale * smaller, q = w * scale * smaller;
    add_product(&a, p, p);
    add_product(&b, q, q);
    bad += (v - v) + (w - w);
  }
  float lane[EVN_LANES], bad_lane[EVN_LANES];
  STOREV(total(&a) + total(&b), lane);
  STOREV(bad, bad_lane);
  float sum = 0.0f;
  for (int l = 0; l < EVN_LANES; ++l) {
    sum += lane[l];
    *wrong += bad_lane[l];
  }
  for (; i < end; ++i) {
    const float p = x[i] * scale * smaller;
    sum = fma(p, p, sum);
    *wrong += x[i] - x[i];
  }
  return sum;
}

// For each piece of a tensor that is multiplied by the scale: the sum of squares, or 0 if that is large; the sum of the squares of smaller
// numbers if it is large, or 0; 0 if all elements are finite, or NaN. Grid: pieces.
EVN_KERNEL void sum_squares(global const float* x, ulong x0, global const float* scale, ulong scale0, global float* sums, ulong sums0, long n,
                            long chunk, long first) {
  const long piece = get_global_id(0);
  const long begin = piece * chunk;
  const long end = min(begin + chunk, n);
  if (begin >= end) return;
  float wrong = 0.0f, again = 0.0f;
  const float sum = sum_of_squares(x + x0, begin, end, scale[scale0], 1.0f, &wrong);
  const bool is_large = sum > EVN_LARGE;
  sums += sums0 + 3 * (first + piece);
  sums[0] = is_large ? 0.0f : sum;
  sums[1] = is_large ? sum_of_squares(x + x0, begin, end, scale[scale0], EVN_SMALLER, &again) : 0.0f;
  sums[2] = wrong;
}

// Adds v to a sum. What rounding takes is subtracted from the next v.
static inline void add_compensated(float v, float* sum, float* lost) {
  v -= *lost;
  const float next = *sum + v;
  *lost = next - next == 0.0f ? (next - *sum) - v : 0.0f;
  *sum = next;
}

// One work item: the norm by the sums of all pieces, in their order.
EVN_KERNEL void finish_norm(global const float* sums, ulong sums0, global float* norm, ulong norm0, global uchar* finite, ulong finite0,
                            long count, int has_norm, int has_finite) {
  if (get_global_id(0) != 0) return;
  float sum = 0.0f, lost = 0.0f, large = 0.0f, lost_of_large = 0.0f, wrong = 0.0f;
  sums += sums0;
  for (long i = 0; i < count; ++i) {
    add_compensated(sums[3 * i], &sum, &lost);
    add_compensated(sums[3 * i + 1], &large, &lost_of_large);
    wrong += sums[3 * i + 2];
  }
  if (has_norm) norm[norm0] = large == 0.0f ? sqrt(sum) : sqrt(large + sum * EVN_SMALLER * EVN_SMALLER) * (1.0f / EVN_SMALLER);
  if (has_finite) finite[finite0 * 4] = wrong == 0.0f;
}
