// Vectors of which only the first `count` lanes lie in memory.

static inline VF load_some(global const float* x, long count) {
  if (count >= EVN_LANES) return LOADV(x);
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = i < count ? x[i] : 0.0f;
  return LOADV(lane);
}

static inline void store_some(VF v, global float* y, long count) { store_lanes(v, y, 0, (int)min(count, (long)EVN_LANES)); }
