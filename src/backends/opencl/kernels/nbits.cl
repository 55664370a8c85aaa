// MatMulNBits: float32 by weights of 4 or 8 bits, which become floats as they are read. Words of weights are [columns / 32][words of a
// column][32], the first number in the lowest bits; scales and zero points [columns / 32][blocks][32].

#define EVN_PANEL 32
#define EVN_CHAIN 64  // words of a block, and parts of blocks, that are added up by themselves, as long chains round more
#define VU EVN_CAT(uint, EVN_LANES)
#define TO_VF(v) EVN_CAT(convert_float, EVN_LANES)(EVN_CAT(as_int, EVN_LANES)(v))

typedef struct {
  long m, n, k;
  int words, blocks, block, bits;
  int has_zeros, has_bias;
  int rows_first;  // the grid's first dimension counts blocks of rows
  int padding;
} NBits;

#define EVN_ROWS(F, k) F(0, k) F(1, k) F(2, k) F(3, k) F(4, k) F(5, k) F(6, k) F(7, k)
#define EVN_ONE(F, k) F(0, k)
#define EVN_ADD(r, k) part[r] = fma((VF)row[r][k], q, part[r]);
#define EVN_STEP(j, BITS, EACH)                                       \
  {                                                                   \
    const VF q = TO_VF(word >> (BITS * j) & ((1u << BITS) - 1u)) - z; \
    EACH(EVN_ADD, k + j)                                              \
  }

#define EVN_DEFINE(NAME, COUNT, EACH)                                                                                      \
  EVN_KERNEL void NAME(global const float* a, ulong a0, global const uint* w, ulong w0, global const float* scales, ulong s0, \
                       global const float* zeros, ulong z0, global const float* bias, ulong b0, global float* y, ulong y0, \
                       NBits p, Epilogue e) {                                                                              \
    const long gx = get_global_id(0), gy = get_global_id(1);                                                               \
    const long first = (p.rows_first ? gx : gy) * COUNT, column = (p.rows_first ? gy : gx) * EVN_LANES;                    \
    if (first >= p.m || column >= p.n) return;                                                                             \
    const long panel = column / EVN_PANEL, lane = column % EVN_PANEL;                                                      \
    global const uint* words = w + w0 + panel * p.words * EVN_PANEL + lane;                                                \
    const long numbers = panel * p.blocks * EVN_PANEL + lane;                                                              \
    global const float* row[COUNT];                                                                                        \
    VF total[COUNT], all[COUNT];                                                                                           \
    for (int r = 0; r < COUNT; ++r) {                                                                                      \
      row[r] = a + a0 + min(first + r, p.m - 1) * p.k;                                                                     \
      total[r] = all[r] = (VF)0.0f;                                                                                        \
    }                                                                                                                      \
    const int step = 32 / p.bits;                                                                                          \
    long parts = 0;                                                                                                        \
    for (int b = 0; b < p.blocks; ++b) {                                                                                   \
      const VF z = p.has_zeros ? LOADV(zeros + z0 + numbers + (long)b * EVN_PANEL) : (VF)(float)(1 << (p.bits - 1));       \
      const long block_end = min((long)(b + 1) * p.block, p.k);                                                            \
      long k = (long)b * p.block;                                                                                          \
      global const uint* at = words + k / step * EVN_PANEL;                                                                \
      while (k < block_end) {                                                                                              \
        const long end = min(k + EVN_CHAIN * step, block_end);                                                             \
        VF part[COUNT];                                                                                                    \
        for (int r = 0; r < COUNT; ++r) part[r] = (VF)0.0f;                                                                \
        for (; k + step <= end; k += step, at += EVN_PANEL) {                                                              \
          const VU word = EVN_CAT(vload, EVN_LANES)(0, at);                                                                \
          if (p.bits == 4) {                                                                                               \
            EVN_STEP(0, 4, EACH) EVN_STEP(1, 4, EACH) EVN_STEP(2, 4, EACH) EVN_STEP(3, 4, EACH)                            \
            EVN_STEP(4, 4, EACH) EVN_STEP(5, 4, EACH) EVN_STEP(6, 4, EACH) EVN_STEP(7, 4, EACH)                            \
          } else {                                                                                                         \
            EVN_STEP(0, 8, EACH) EVN_STEP(1, 8, EACH) EVN_STEP(2, 8, EACH) EVN_STEP(3, 8, EACH)                            \
          }                                                                                                                \
        }                                                                                                                  \
        if (k < end) {                                                                                                     \
          VU word = EVN_CAT(vload, EVN_LANES)(0, at);                                                                      \
          for (; k < end; ++k, word >>= (uint)p.bits) {                                                                    \
            const VF q = TO_VF(word & ((1u << p.bits) - 1u)) - z;                                                          \
            EACH(EVN_ADD, k)                                                                                               \
          }                                                                                                                \
        }                                                                                                                  \
        const VF scale = LOADV(scales + s0 + numbers + (long)b * EVN_PANEL);                                               \
        for (int r = 0; r < COUNT; ++r) total[r] = fma(part[r], scale, total[r]);                                          \
        if (++parts % EVN_CHAIN != 0) continue;                                                                            \
        for (int r = 0; r < COUNT; ++r) {                                                                                  \
          all[r] += total[r];                                                                                              \
          total[r] = (VF)0.0f;                                                                                             \
        }                                                                                                                  \
      }                                                                                                                    \
    }                                                                                                                      \
    const int lanes = (int)min(p.n - column, (long)EVN_LANES);                                                             \
    float lane_of[EVN_LANES];                                                                                              \
    for (int i = 0; i < EVN_LANES; ++i) lane_of[i] = p.has_bias && i < lanes ? bias[b0 + column + i] : 0.0f;               \
    const VF added = LOADV(lane_of);                                                                                       \
    for (int r = 0; r < (int)min(p.m - first, (long)COUNT); ++r) {                                                         \
      const VF v = apply_epilogue((all[r] + total[r]) + added, &e);                                                        \
      global float* to = y + y0 + (first + r) * p.n + column;                                                              \
      if (lanes == EVN_LANES) {                                                                                            \
        STOREV(v, to);                                                                                                     \
      } else {                                                                                                             \
        STOREV(v, lane_of);                                                                                                \
        for (int i = 0; i < lanes; ++i) to[i] = lane_of[i];                                                                \
      }                                                                                                                    \
    }                                                                                                                      \
  }
// Grid: blocks of rows and vectors of columns, in either order.
EVN_DEFINE(multiply_nbits_8, 8, EVN_ROWS)
EVN_DEFINE(multiply_nbits_1, 1, EVN_ONE)

// Blocks of A as their rounded elements, which a product reads in place of A (ops/row_quantization.h).
EVN_KERNEL void round_blocks(global const float* a, ulong a0, global float* to, ulong t0, NBits p) {
  const long row = get_global_id(0), b = get_global_id(1);
  if (row >= p.m || b >= p.blocks) return;
  const long begin = row * p.k + b * p.block, end = begin + min((long)p.block, p.k - b * p.block);
  uint largest = 0u;  // bits have the order of magnitudes
  for (long i = begin; i < end; ++i) largest = max(largest, as_uint(a[a0 + i]) & 0x7fffffffu);
  float factor = 0.0f, scale = 0.0f;
  if (largest >= 0x7f800000u) {
    scale = NAN;
  } else if (largest >= 0x0d800000u) {  // 2^-100
    factor = quotient(127.0f, as_float(largest));
    scale = quotient(as_float(largest), 127.0f);
  }
  for (long i = begin; i < end; ++i) to[t0 + i] = (factor == 0.0f ? 0.0f : rint(a[a0 + i] * factor)) * scale;
}
