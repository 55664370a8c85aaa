// softmax(scale * Q K^T + mask) V, a row of queries to a work item; see ops/fused_attention.h. Chains of additions depend on the
// lengths alone.

typedef struct {
  long q_step[4], k_step[4], v_step[4], y_step[4], mask_step[4];
  long q_offset, k_offset, v_offset;
  long heads, queries, keys, depth, value_depth, rows, chunk;
  float scale;
  int has_mask;
} Attention;

static inline long place(const long* step, long b, long h, long s) { return b * step[0] + h * step[1] + s * step[2]; }

static inline float dot_of(global const float* a, long a_step, global const float* b, long b_step, long n) {
  float sum = 0.0f;
  long i = 0;
  if (a_step == 1 && b_step == 1) {
    VF s = (VF)0.0f;
    for (; i + EVN_LANES <= n; i += EVN_LANES) s = fma(LOADV(a + i), LOADV(b + i), s);
    float lane[EVN_LANES];
    STOREV(s, lane);
    for (int j = 0; j < EVN_LANES; ++j) sum += lane[j];
  }
  for (; i < n; ++i) sum = fma(a[i * a_step], b[i * b_step], sum);
  return sum;
}

// Scores to weights whose sum is not 1 yet; returns 1 / the sum.
static inline float weigh(global float* s, long n) {
  float top = -INFINITY;
  for (long t = 0; t < n; ++t) top = fmax(top, s[t]);
  float sum = 0.0f;
  for (long t = 0; t < n; ++t) {
    s[t] = exp_of(s[t] - top);
    sum += s[t];
  }
  return 1.0f / sum;
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
        VF sum = (VF)0.0f;
        for (long t = 0; t < p.keys; ++t) sum = fma((VF)line[t], LOADV(values + t * p.v_step[2] + d), sum);
        STOREV(sum * inverse, out + d);
      }
    }
    for (; d < p.value_depth; ++d) {
      float sum = 0.0f;
      for (long t = 0; t < p.keys; ++t) sum = fma(line[t], values[t * p.v_step[2] + d * p.v_step[3]], sum);
      out[d * p.y_step[3]] = sum * inverse;
    }
  }
}
