// The derivative of Attention (ops/training/attention_gradient.h). No scores are kept: a work item computes them again for EVN_LANES rows, which
// are the lanes of its vectors, and the rows of the other side, EVN_TILE at a time. Rows in lanes come packed across, [depth][row]; what
// they get is added up in the same form and written as rows in the end. The work items of attention_queries have queries in their lanes:
// they make what Softmax needs of each row (its largest score and its sum), the sum of P dP, and dQ. Those of attention_keys have keys in
// their lanes and go through the queries of all heads that these serve: dK and dV. Sums are made in the order of the rows.

#include "attention_keys.cl"
#include "lanes.cl"
#include "sums.cl"

#define EVN_DEPTH 16  // products that are added up by themselves, as long chains round more
#define EVN_KEYS 512  // and rows

// to[i] = the products of the rows in the lanes of `across` and row first + i.
static inline void multiply(global const float* across, long padded, global const float* rows, long step, long first, long count, long depth,
                            VF* to) {
  global const float* row[EVN_TILE];
  for (int i = 0; i < EVN_TILE; ++i) {
    row[i] = rows + min(first + i, count - 1) * step;
    to[i] = (VF)0.0f;
  }
  for (long begin = 0; begin < depth; begin += EVN_DEPTH) {
    VF part[EVN_TILE];
    for (int i = 0; i < EVN_TILE; ++i) part[i] = (VF)0.0f;
    for (long d = begin; d < min(begin + EVN_DEPTH, depth); ++d) {
      const VF v = LOADV(across + d * padded);
      _Pragma("unroll") for (int i = 0; i < EVN_TILE; ++i) part[i] = fma((VF)row[i][d], v, part[i]);
    }
    for (int i = 0; i < EVN_TILE; ++i) to[i] += part[i];
  }
}

// The products with one row, with the same bits.
static inline VF multiply_row(global const float* across, long padded, global const float* row, long depth) {
  VF sum = (VF)0.0f;
  for (long begin = 0; begin < depth; begin += EVN_DEPTH) {
    VF part = (VF)0.0f;
    for (long d = begin; d < min(begin + EVN_DEPTH, depth); ++d) part = fma((VF)row[d], LOADV(across + d * padded), part);
    sum += part;
  }
  return sum;
}

// to += the sum of by[i] times row first + i, in the form of `across`. Sums have two parts: of the latest rows, and behind them of all
// rows before.
static inline void add_rows(const VF* by, global const float* rows, long step, long first, long count, long depth, global float* to,
                            long padded) {
  global const float* row[EVN_TILE];
  for (int i = 0; i < EVN_TILE; ++i) row[i] = rows + min(first + i, count - 1) * step;
  for (long d = 0; d < depth; ++d) {
    VF sum = LOADV(to + d * padded);
    _Pragma("unroll") for (int i = 0; i < EVN_TILE; ++i) sum = fma((VF)row[i][d], by[i], sum);
    STOREV(sum, to + d * padded);
  }
}

static inline void clear_across(global float* to, long padded, long depth) {
  for (long d = 0; d < 2 * depth; ++d) STOREV((VF)0.0f, to + d * padded);
}

// Adds the sums of the latest rows to those of the rows before; returns these.
static inline global float* merge_across(global float* to, long padded, long depth) {
  global float* all = to + depth * padded;
  for (long d = 0; d < depth; ++d) {
    STOREV(LOADV(all + d * padded) + LOADV(to + d * padded), all + d * padded);
    STOREV((VF)0.0f, to + d * padded);
  }
  return all;
}

// Lanes to the rows that there are, from `first` on.
static inline void write_rows(global const float* across, long padded, long depth, long first, long rows, global float* to, long step) {
  for (long d = 0; d < depth; ++d) {
    float lane[EVN_LANES];
    STOREV(LOADV(across + d * padded), lane);
    for (int i = 0; i < EVN_LANES && first + i < rows; ++i) to[(first + i) * step + d] = lane[i];
  }
}

// The score of a product, without the mask, and its slope by the product.
static inline VF score_of(const Attention* p, VF product, VF* slope) {
  *slope = (VF)p->scale;
  const VF x = product * p->scale;
  if (p->softcap == 0.0f) return x;
  const VF bent = tanh_of(x / p->softcap);
  *slope = p->scale * (1.0f - bent * bent);
  return p->softcap * bent;
}

// What the mask adds to the scores of query s for the keys in the lanes, from t on.
static inline VF mask_of_keys(const Attention* p, global const float* mask, long at, long s, long t) {
  const long from = at + s * p->mask_step[2] + t, count = p->mask_columns - t;
  if (p->mask == 1) return load_some(mask + from, count);
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = i < count && ((global const uchar*)mask)[from + i] != 0 ? 0.0f : -INFINITY;
  return LOADV(lane);
}

// Weights of scores, 0 where a key is hidden; `top` and `inverse` are those of the rows.
static inline VF weights_of(VF score, VF top, VF inverse, VI seen) { return seen ? exp_of(score - top) * inverse : (VF)0.0f; }

// Row statistics: [batch][head][top, 1 / sum, sum of P dP][query]. Grid: vectors of queries, heads, batch.
EVN_KERNEL void attention_queries(global const float* q, ulong q0, global const float* dy, ulong dy0, global const float* k, ulong k0,
                                  global const float* v, ulong v0, global const float* mask, ulong mask0, global const long* nonpad,
                                  ulong nonpad0, global float* rows, ulong rows0, global float* sums, ulong sums0, global float* dq, ulong dq0,
                                  Attention p, int has_dq) {
  const long s = (long)get_global_id(0) * EVN_LANES, h = get_global_id(1), b = get_global_id(2), padded = p.padded_queries;
  if (s >= padded) return;
  const long kv_head = h / (p.heads / p.kv_heads), head = b * p.heads + h;
  nonpad = (global const long*)((global const int*)nonpad + nonpad0);
  int lows[EVN_LANES], highs[EVN_LANES], begin = INT_MAX, end = 0;
  for (int i = 0; i < EVN_LANES; ++i) {
    seen_keys(&p, nonpad, b, s + i, &lows[i], &highs[i]);
    if (highs[i] <= lows[i]) continue;
    begin = min(begin, lows[i]);
    end = max(end, highs[i]);
  }
  const VI low = EVN_CAT(vload, EVN_LANES)(0, lows), high = EVN_CAT(vload, EVN_LANES)(0, highs);
  q += q0 + head * p.depth * padded + s;
  dy += dy0 + head * p.value_depth * padded + s;
  k += k0 + head_at(p.k_step, b, kv_head);
  v += v0 + head_at(p.v_step, b, kv_head);
  mask += mask0;
  const long mask_at = head_at(p.mask_step, b, h);
  VF top = (VF)-INFINITY, sum = (VF)0.0f, along = (VF)0.0f, score[EVN_TILE], by[EVN_TILE], slope;
  // The last tile repeats the last key that is seen: padding behind it may be NaN.
  VF sum_before = (VF)0.0f, along_before = (VF)0.0f, kept_before = (VF)1.0f;  // of the rows before, and their factor
  for (long t = begin; t < end; t += EVN_TILE) {
    if (t != begin && (t - begin) % EVN_KEYS == 0) {
      sum_before = fma(sum_before, kept_before, sum);
      along_before = fma(along_before, kept_before, along);
      sum = along = (VF)0.0f;
      kept_before = (VF)1.0f;
    }
    multiply(q, padded, k, p.k_step[2], t, end, p.depth, score);
    multiply(dy, padded, v, p.v_step[2], t, end, p.value_depth, by);
    VF next = top;
    for (int i = 0; i < EVN_TILE; ++i) {
      score[i] = score_of(&p, score[i], &slope);
      if (p.mask != 0) score[i] += mask_of_queries(&p, mask, mask_at, s, t + i);
      const VI at = (VI)(int)(t + i), seen = at >= low && at < high;
      score[i] = seen ? score[i] : (VF)-INFINITY;
      next = fmax(next, score[i]);
    }
    const VF base = next == (VF)-INFINITY ? (VF)0.0f : next, kept = exp_of(top - base);
    sum *= kept;
    along *= kept;
    kept_before *= kept;
    for (int i = 0; i < EVN_TILE; ++i) {
      const VF weight = exp_of(score[i] - base);
      sum += weight;
      along += weight == (VF)0.0f ? (VF)0.0f : weight * by[i];
    }
    top = next;
  }
  sum = fma(sum_before, kept_before, sum);
  along = fma(along_before, kept_before, along);
  const VF inverse = sum == (VF)0.0f ? (VF)0.0f : 1.0f / sum;
  top = top == (VF)-INFINITY ? (VF)0.0f : top;
  along *= inverse;
  rows += rows0 + head * 3 * padded + s;
  STOREV(top, rows);
  STOREV(inverse, rows + padded);
  STOREV(along, rows + 2 * padded);
  if (!has_dq) return;
  sums += sums0 + head * 2 * p.depth * padded + s;
  clear_across(sums, padded, p.depth);
  for (long t = begin; t < end; t += EVN_TILE) {
    multiply(q, padded, k, p.k_step[2], t, end, p.depth, score);
    multiply(dy, padded, v, p.v_step[2], t, end, p.value_depth, by);
    for (int i = 0; i < EVN_TILE; ++i) {
      VF x = score_of(&p, score[i], &slope);
      if (p.mask != 0) x += mask_of_queries(&p, mask, mask_at, s, t + i);
      const VI at = (VI)(int)(t + i);
      const VF weight = weights_of(x, top, inverse, at >= low && at < high);
      by[i] = weight == (VF)0.0f ? (VF)0.0f : weight * (by[i] - along) * slope;
    }
    add_rows(by, k, p.k_step[2], t, end, p.depth, sums, padded);
    if ((t - begin) % EVN_KEYS == EVN_KEYS - EVN_TILE) merge_across(sums, padded, p.depth);
  }
  write_rows(merge_across(sums, padded, p.depth), padded, p.depth, s, p.queries, dq + dq0 + head_at(p.q_step, b, h), p.q_step[2]);
}

// Grid: vectors of keys, heads of keys, batch.
EVN_KERNEL void attention_keys(global const float* q, ulong q0, global const float* dy, ulong dy0, global const float* k, ulong k0,
                               global const float* v, ulong v0, global const float* mask, ulong mask0, global const long* nonpad,
                               ulong nonpad0, global const float* rows, ulong rows0, global float* k_sums, ulong k_sums0, global float* v_sums,
                               ulong v_sums0, global float* dk, ulong dk0, global float* dv, ulong dv0, Attention p, int has_dk, int has_dv) {
  const long t = (long)get_global_id(0) * EVN_LANES, kv_head = get_global_id(1), b = get_global_id(2), padded = p.padded_keys;
  if (t >= padded) return;
  const long head = b * p.kv_heads + kv_head, group = p.heads / p.kv_heads;
  nonpad = (global const long*)((global const int*)nonpad + nonpad0);
  k += k0 + head * p.depth * padded + t;
  v += v0 + head * p.value_depth * padded + t;
  mask += mask0;
  k_sums += k_sums0 + head * 2 * p.depth * padded + t;
  v_sums += v_sums0 + head * 2 * p.value_depth * padded + t;
  if (has_dk) clear_across(k_sums, padded, p.depth);
  if (has_dv) clear_across(v_sums, padded, p.value_depth);
  const VI at = (VI)(int)t + EVN_IOTA;
  int rows_left = EVN_KEYS;
  for (long h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    global const float *of_q = q + q0 + head_at(p.q_step, b, h), *of_y = dy + dy0 + head_at(p.y_step, b, h);
    global const float* row = rows + rows0 + (b * p.heads + h) * 3 * p.padded_queries;
    const long mask_at = head_at(p.mask_step, b, h);
    for (long s = 0; s < p.queries; s += EVN_TILE) {
      int low[EVN_TILE], high[EVN_TILE];
      bool any = false;
      for (int i = 0; i < EVN_TILE; ++i) {
        seen_keys(&p, nonpad, b, s + i, &low[i], &high[i]);
        any = any || (low[i] < t + EVN_LANES && high[i] > t);
      }
      if (!any) continue;
      VF weight[EVN_TILE], by[EVN_TILE], slope;
      multiply(k, padded, of_q, p.q_step[2], s, p.queries, p.depth, weight);
      if (has_dk) multiply(v, padded, of_y, p.y_step[2], s, p.queries, p.value_depth, by);
      for (int i = 0; i < EVN_TILE; ++i) {
        VF x = score_of(&p, weight[i], &slope);
        const long line = min(s + i, p.queries - 1);
        if (p.mask != 0) x += mask_of_keys(&p, mask, mask_at, line, t);
        weight[i] = weights_of(x, (VF)row[line], (VF)row[p.padded_queries + line], at >= (VI)low[i] && at < (VI)high[i]);
        if (has_dk) by[i] = weight[i] == (VF)0.0f ? (VF)0.0f : weight[i] * (by[i] - row[2 * p.padded_queries + line]) * slope;
      }
      if (has_dk) add_rows(by, of_q, p.q_step[2], s, p.queries, p.depth, k_sums, padded);
      if (has_dv) add_rows(weight, of_y, p.y_step[2], s, p.queries, p.value_depth, v_sums, padded);
      rows_left -= EVN_TILE;
      if (rows_left > 0) continue;
      rows_left = EVN_KEYS;
      if (has_dk) merge_across(k_sums, padded, p.depth);
      if (has_dv) merge_across(v_sums, padded, p.value_depth);
    }
  }
  if (has_dk) write_rows(merge_across(k_sums, padded, p.depth), padded, p.depth, t, p.keys, dk + dk0 + head_at(p.k_step, b, kv_head), p.k_step[2]);
  if (has_dv) write_rows(merge_across(v_sums, padded, p.value_depth), padded, p.value_depth, t, p.keys, dv + dv0 + head_at(p.v_step, b, kv_head), p.v_step[2]);
}

// The mask's derivative: a row of it serves all batches, heads and queries of which it has one. Grid: vectors of columns, rows.
EVN_KERNEL void attention_mask(global const float* q, ulong q0, global const float* dy, ulong dy0, global const float* k, ulong k0,
                               global const float* v, ulong v0, global const float* mask, ulong mask0, global const long* nonpad,
                               ulong nonpad0, global const float* rows, ulong rows0, global float* to, ulong to0, Attention p) {
  const long t = (long)get_global_id(0) * EVN_LANES;
  if (t >= p.mask_columns) return;
  const long number = get_global_id(1), padded = p.padded_keys;
  const long only_s = number % p.mask_dim[2], only_h = number / p.mask_dim[2] % p.mask_dim[1], only_b = number / p.mask_dim[2] / p.mask_dim[1];
  const bool one_b = p.mask_dim[0] != 1, one_h = p.mask_dim[1] != 1, one_s = p.mask_dim[2] != 1;
  nonpad = (global const long*)((global const int*)nonpad + nonpad0);
  mask += mask0;
  const VI at = (VI)(int)t + EVN_IOTA;
  Sums all;
  start(&all);
  for (long b = one_b ? only_b : 0; b < (one_b ? only_b + 1 : p.batch); ++b) {
    for (long h = one_h ? only_h : 0; h < (one_h ? only_h + 1 : p.heads); ++h) {
      const long kv = b * p.kv_heads + h / (p.heads / p.kv_heads), head = b * p.heads + h;
      Sums sum;
      start(&sum);
      for (long s = one_s ? only_s : 0; s < (one_s ? only_s + 1 : p.queries); ++s) {
        int low, high;
        seen_keys(&p, nonpad, b, s, &low, &high);
        if (low >= t + EVN_LANES || high <= t) continue;
        global const float *of_q = q + q0 + head_at(p.q_step, b, h) + s * p.q_step[2], *of_k = k + k0 + kv * p.depth * padded + t;
        global const float *of_y = dy + dy0 + head_at(p.y_step, b, h) + s * p.y_step[2], *of_v = v + v0 + kv * p.value_depth * padded + t;
        const VF score = multiply_row(of_k, padded, of_q, p.depth), by = multiply_row(of_v, padded, of_y, p.value_depth);
        VF slope;
        global const float* row = rows + rows0 + head * 3 * p.padded_queries + s;
        const VF x = score_of(&p, score, &slope) + mask_of_keys(&p, mask, head_at(p.mask_step, b, h), s, t);
        const VF weight = weights_of(x, (VF)row[0], (VF)row[p.padded_queries], at >= (VI)low && at < (VI)high);
        add(&sum, weight == (VF)0.0f ? (VF)0.0f : weight * (by - row[2 * p.padded_queries]));
      }
      add(&all, total(&sum));
    }
  }
  store_lanes(total(&all), to + to0 + number * p.mask_columns + t, 0, (int)min(p.mask_columns - t, (long)EVN_LANES));
}
