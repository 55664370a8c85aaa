// Attention and its derivative: the struct of kernels/attention_params.h, and the keys that queries see.

typedef struct {
  long q_step[3], k_step[3], v_step[3], y_step[3];  // from batch to batch, head to head, row to row
  long mask_step[3], mask_dim[3];                   // of batches, heads and queries; a dim that is 1 serves all
  long mask_columns, left, right;                   // keys beyond the columns are hidden
  long batch, heads, kv_heads, queries, keys, depth, value_depth;
  long padded_queries, padded_keys;
  float scale, softcap;
  int mask;  // 0 none, 1 added, 2 bool
  int has_nonpad;
} Attention;

#define EVN_TILE 8  // keys, or queries, that a work item takes at once

static inline long head_at(const long* step, long b, long h) { return b * step[0] + h * step[1]; }

// The keys that query s of batch b sees: from low to high, where that is more.
static inline void seen_keys(const Attention* p, global const long* nonpad, long b, long s, int* low, int* high) {
  *low = *high = 0;
  if (s >= p->queries) return;
  const long given = p->has_nonpad ? max(nonpad[b], 0L) : p->keys;
  const long at = p->has_nonpad ? s + given - p->queries : s;
  *low = (int)clamp(at - p->left, 0L, p->keys);
  *high = (int)clamp(min(at + p->right + 1, min(given, p->mask_columns)), 0L, p->keys);
}

// What the mask adds to the scores of the queries in the lanes, from s on, for key t.
static inline VF mask_of_queries(const Attention* p, global const float* mask, long at, long s, long t) {
  float lane[EVN_LANES];
  const long column = min(t, p->mask_columns - 1);
  for (int i = 0; i < EVN_LANES; ++i) {
    const long from = at + min(s + i, p->queries - 1) * p->mask_step[2] + column;
    lane[i] = p->mask == 1 ? mask[from] : ((global const uchar*)mask)[from] != 0 ? 0.0f : -INFINITY;
  }
  return LOADV(lane);
}
