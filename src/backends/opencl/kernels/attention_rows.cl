// Attention of the format (ops/attention.cc), without storing scores: a work item has EVN_LANES queries in the lanes of its vectors and goes
// through their keys once, EVN_TILE at a time. What it has summed up is made smaller whenever a larger score is met. Queries come packed
// across, [depth][query]; results are added up in the same form, those of EVN_KEYS keys by themselves, as long chains round more. Chains of
// additions depend on the lengths alone.

#include "attention_keys.cl"

#define EVN_KEYS 512

// Rows of x to lanes, 0 where there are no more. Grid: vectors of rows, heads, batch.
EVN_KERNEL void pack_across(global const float* x, ulong x0, global float* y, ulong y0, long batch_step, long head_step, long row_step,
                            long rows, long padded, long depth) {
  const long first = (long)get_global_id(0) * EVN_LANES, h = get_global_id(1), b = get_global_id(2);
  if (first >= padded) return;
  global const float* from = x + x0 + b * batch_step + h * head_step + first * row_step;
  global float* to = y + y0 + (b * get_global_size(1) + h) * depth * padded + first;
  for (long d = 0; d < depth; ++d) {
    float lane[EVN_LANES];
    for (int i = 0; i < EVN_LANES; ++i) lane[i] = first + i < rows ? from[i * row_step + d] : 0.0f;
    STOREV(LOADV(lane), to + d * padded);
  }
}

// Grid: vectors of queries, heads, batch.
EVN_KERNEL void attention_rows(global const float* q, ulong q0, global const float* k, ulong k0, global const float* v, ulong v0,
                               global const float* mask, ulong mask0, global const long* nonpad, ulong nonpad0, global float* sums, ulong sums0,
                               global float* y, ulong y0, Attention p) {
  const long s = (long)get_global_id(0) * EVN_LANES, h = get_global_id(1), b = get_global_id(2), padded = p.padded_queries;
  if (s >= padded) return;
  const long kv_head = h / (p.heads / p.kv_heads), head = b * p.heads + h;
  int lows[EVN_LANES], highs[EVN_LANES], begin = INT_MAX, end = 0;
  for (int i = 0; i < EVN_LANES; ++i) {
    seen_keys(&p, (global const long*)((global const int*)nonpad + nonpad0), b, s + i, &lows[i], &highs[i]);
    if (highs[i] <= lows[i]) continue;
    begin = min(begin, lows[i]);
    end = max(end, highs[i]);
  }
  const VI low = EVN_CAT(vload, EVN_LANES)(0, lows), high = EVN_CAT(vload, EVN_LANES)(0, highs);
  q += q0 + head * p.depth * padded + s;
  k += k0 + b * p.k_step[0] + kv_head * p.k_step[1];
  v += v0 + b * p.v_step[0] + kv_head * p.v_step[1];
  // Sums of the latest keys, followed by those of all keys before them.
  sums += sums0 + head * 2 * p.value_depth * padded + s;
  const long before = p.value_depth * padded;
  const long mask_at = b * p.mask_step[0] + h * p.mask_step[1];
  for (long d = 0; d < p.value_depth; ++d) {
    STOREV((VF)0.0f, sums + d * padded);
    STOREV((VF)0.0f, sums + before + d * padded);
  }
  VF top = (VF)-INFINITY, sum = (VF)0.0f, sum_before = (VF)0.0f;
  VF kept_before = (VF)1.0f;  // what the sums before are to be multiplied by
  for (long t = begin; t < end; t += EVN_TILE) {
    if (t != begin && (t - begin) % EVN_KEYS == 0) {
      sum_before = fma(sum_before, kept_before, sum);
      sum = (VF)0.0f;
      for (long d = 0; d < p.value_depth; ++d) {
        STOREV(fma(LOADV(sums + before + d * padded), kept_before, LOADV(sums + d * padded)), sums + before + d * padded);
        STOREV((VF)0.0f, sums + d * padded);
      }
      kept_before = (VF)1.0f;
    }
    VF score[EVN_TILE];
    global const float* row[EVN_TILE];  // the last tile repeats the last key that is seen: padding behind it may be NaN
    for (int i = 0; i < EVN_TILE; ++i) {
      row[i] = k + min(t + i, (long)end - 1) * p.k_step[2];
      score[i] = (VF)0.0f;
    }
    for (long d = 0; d < p.depth; ++d) {
      const VF x = LOADV(q + d * padded);
      _Pragma("unroll") for (int i = 0; i < EVN_TILE; ++i) score[i] = fma((VF)row[i][d], x, score[i]);
    }
    VF next = top;
    for (int i = 0; i < EVN_TILE; ++i) {
      score[i] *= p.scale;
      if (p.softcap != 0.0f) score[i] = p.softcap * tanh_of(score[i] / p.softcap);
      if (p.mask != 0) score[i] += mask_of_queries(&p, mask + mask0, mask_at, s, t + i);
      const VI at = (VI)(int)(t + i), seen = at >= low && at < high;
      score[i] = seen ? score[i] : (VF)-INFINITY;
      next = fmax(next, score[i]);
    }
    const VF base = next == (VF)-INFINITY ? (VF)0.0f : next, kept = exp_of(top - base);
    top = next;
    sum *= kept;
    kept_before *= kept;
    for (int i = 0; i < EVN_TILE; ++i) {
      score[i] = exp_of(score[i] - base);
      sum += score[i];
      row[i] = v + min(t + i, (long)end - 1) * p.v_step[2];
    }
    for (long d = 0; d < p.value_depth; ++d) {
      VF x = LOADV(sums + d * padded) * kept;
      _Pragma("unroll") for (int i = 0; i < EVN_TILE; ++i) x = fma((VF)row[i][d], score[i], x);
      STOREV(x, sums + d * padded);
    }
  }
  // A query that sees nothing gives zeros.
  sum = fma(sum_before, kept_before, sum);
  const VF inverse = sum == (VF)0.0f ? (VF)0.0f : 1.0f / sum;
  global float* to = y + y0 + b * p.y_step[0] + h * p.y_step[1];
  for (long d = 0; d < p.value_depth; ++d) {
    float lane[EVN_LANES];
    STOREV(fma(LOADV(sums + before + d * padded), kept_before, LOADV(sums + d * padded)) * inverse, lane);
    for (int i = 0; i < EVN_LANES && s + i < p.queries; ++i) to[(s + i) * p.y_step[2] + d] = lane[i];
  }
}
