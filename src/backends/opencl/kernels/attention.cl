// softmax(scale * Q K^T + mask) V, a row of queries to a work item; see ops/fused_attention.h. Chains of additions depend on the
// lengths alone.

#include "sums.cl"

typedef struct {
  long q_step[4], k_step[4], v_step[4], y_step[4], mask_step[4];
  long q_offset, k_offset, v_offset;
  long heads, queries, keys, depth, value_depth, rows, chunk;
  float scale;
  int has_mask;
} Attention;

static inline long place(const long* step, long b, long h, long s) { return b * step[0] + h * step[1] + s * step[2]; }

static inline float dot_of(global const float* a, long a_step, global const float* b, long b_step, long n) {
  Sum sum;
  start(&sum);
  long i = 0;
  if (a_step == 1 && b_step == 1) {
    Sums s;
    start(&s);
    for (; i + EVN_LANES <= n; i += EVN_LANES) add_product(&s, LOADV(a + i), LOADV(b + i));
    sum.part = sum_of_lanes(total(&s));
  }
  for (; i < n; ++i) add_product(&sum, a[i * a_step], b[i * b_step]);
  return total(&sum);
}

// Scores to weights whose sum is not 1 yet; returns 1 / the sum.
static inline float weigh(global float* s, long n) {
  float top = -INFINITY;
  for (long t = 0; t < n; ++t) top = fmax(top, s[t]);
  Sum sum;
  start(&sum);
  for (long t = 0; t < n; ++t) {
    s[t] = exp_of(s[t] - top);
    add(&sum, s[t]);
  }
  return 1.0f / total(&sum);
}

// Grid: pieces of the rows. `scores` has room for all of them.
EVN_KERNEL void attention(global const float* q, ulong q0, global const float* k, ulong k0, global const float* v, ulong v0,
                          global const float* mask, ulong mask0, global float* scores, ulong scores0, global float* y, ulong y0,
                          Attention p) {
  const long first = (long)get_global_id(0) * p.chunk;
  const long last = min(first + p.chunk, p.rows);
  for (long row = first; row < last; ++row) {
    const long s = row % p.queries;
    const long h = row / p.queries % p.heads;
    const long b = row / p.queries / p.heads;
    global const float* in = q + q0 + p.q_offset + place(p.q_step, b, h, s);
    global const float* added = mask + mask0 + place(p.mask_step, b, h, s);
    global float* line = scores + scores0 + row * p.keys;
    for (long t = 0; t < p.keys; ++t) {
      const float x = dot_of(in, p.q_step[3], k + k0 + p.k_offset + place(p.k_step, b, h, t), p.k_step[3], p.depth) * p.scale;
      line[t] = p.has_mask ? x + added[t * p.mask_step[3]] : x;
    }
    const float inverse = weigh(line, p.keys);
    global float* out = y + y0 + place(p.y_step, b, h, s);
    global const float* values = v + v0 + p.v_offset + place(p.v_step, b, h, 0);
    long d = 0;
    if (p.v_step[3] == 1 && p.y_step[3] == 1) {
      for (; d + EVN_LANES <= p.value_depth; d += EVN_LANES) {
        Sums sum;
        start(&sum);
        for (long t = 0; t < p.keys; ++t) add_product(&sum, (VF)line[t], LOADV(values + t * p.v_step[2] + d));
        STOREV(total(&sum) * inverse, out + d);
      }
    }
    for (; d < p.value_depth; ++d) {
      Sum sum;
      start(&sum);
      for (long t = 0; t < p.keys; ++t) add_product(&sum, line[t], values[t * p.v_step[2] + d * p.v_step[3]]);
      out[d * p.y_step[3]] = total(&sum) * inverse;
    }
  }
}
