// Dropout: elements stay by numbers of ops/infra/random.h, Philox4x32-10 by key, run and position, and are divided by the share that stays.

// The first number of 53 bits at a position.
static inline ulong random_bits(ulong position, ulong key, ulong run) {
  uint a = (uint)position, b = (uint)(position >> 32), c = (uint)run, d = (uint)(run >> 32);
  uint k0 = (uint)key, k1 = (uint)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const ulong p = (ulong)0xD2511F53u * a, q = (ulong)0xCD9E8D57u * c;
    a = (uint)(q >> 32) ^ b ^ k0;
    b = (uint)q;
    c = (uint)(p >> 32) ^ d ^ k1;
    d = (uint)p;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return ((ulong)a << 32 | b) >> 11;
}

// x / (1 - ratio), as near as if it were computed in more bits: `lost` is what 1 - ratio has lost in `share`.
static inline float divided(float x, float share, float lost) {
  const float whole = x / share, inverse = 1.0f / share;
  float q = whole;
  for (int i = 0; i < 2; ++i) q = fma(fma(-q, lost, fma(-q, share, x)), inverse, q);
  return q - q == 0.0f ? q : whole;
}

// A ratio outside [0, 1), which no kernel can report, makes NaN. y may be x. Grid: pieces.
EVN_KERNEL void dropout(global const float* x, ulong x0, global const float* ratios, ulong ratios0, global const uchar* trains, ulong trains0,
                        global float* y, ulong y0, global uchar* mask, ulong mask0, long n, long chunk, ulong key, ulong run, int has_ratio,
                        int has_trains, int has_mask) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  float ratio = 0.0f;
  if (has_trains && trains[trains0 * 4] != 0) ratio = has_ratio ? ratios[ratios0] : 0.5f;
  const bool valid = ratio >= 0.0f && ratio < 1.0f;
  const ulong least = valid ? (ulong)ceil(ratio * 9007199254740992.0f) : 0;
  const float share = 1.0f - ratio, lost = (1.0f - share) - ratio;
  for (long i = begin; i < end; ++i) {
    const bool stays = least == 0 || random_bits((ulong)i, key, run) >= least;
    const float v = !stays ? 0.0f : ratio == 0.0f ? x[x0 + i] : divided(x[x0 + i], share, lost);
    y[y0 + i] = valid ? v : NAN;
    if (has_mask) mask[mask0 * 4 + i] = stays;
  }
}
