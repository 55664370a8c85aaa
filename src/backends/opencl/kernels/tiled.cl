// Products of matrices and convolutions for GPUs. A work group makes a tile of the output: some steps of the depth of both operands lie
// in local memory while the next ones are read, and a work item keeps 4 x 4, 4 x 8 or 8 x 8 sums. The depth is cut into chains of the
// same length for all tiles, each of fused multiply-adds in the order of the depth; their sums are added up in their order. So all
// tiles give the same bits, and the one that is fastest may be taken. Right-hand matrices are in the panels of matmul.cl, weights in
// the blocks of conv.cl. With EVN_HALF those are halves, and the other operand is rounded to halves as it is read.

#ifdef EVN_HALF
#define STORED half
#define LOAD_STORED(p) vload_half4(0, (p))
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define ROUNDED(v) convert_float4(convert_half4(v))
#define ROUNDED1(x) ((float)(half)(x))
#else
// The nearest halves, ties to even: 11 bits of the number; below 2^-14 multiples of 2^-24, which are those of floats in [0.5, 1); infinity
// from 65520 on.
static inline float4 round_to_half(float4 v) {
  const uint4 magnitude = as_uint4(v) & 0x7fffffffu;
  uint4 rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & 0xffffe000u;
  rounded = rounded >= 0x47800000u ? (uint4)0x7f800000u : rounded;
  rounded = magnitude < 0x38800000u ? as_uint4((as_float4(magnitude) + 0.5f) - 0.5f) : rounded;
  rounded = magnitude > 0x7f800000u ? magnitude : rounded;
  return as_float4(rounded | (as_uint4(v) & 0x80000000u));
}
#define ROUNDED(v) round_to_half(v)
#define ROUNDED1(x) (round_to_half((float4)(x)).s0)
#endif
#else
#define STORED float
#define LOAD_STORED(p) (*(global const float4*)(p))  // aligned: panels and blocks begin at 16 bytes
#define ROUNDED(v) (v)
#define ROUNDED1(x) (x)
#endif
#define EVN_PANEL 32
#define EVN_BLOCK 8

// As in matmul.cl.
typedef struct {
  long m, n, k;
  long a_row, a_step;
  long panels;
  long c_row, c_column;
  float alpha, beta;
  int has_c;
  int rows_first;
  int rank;
  long batch[6], a_stride[6], b_stride[6];
} Product;

// As in conv.cl.
typedef struct {
  int channels, outputs, groups, blocks;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int padded_h, phase_w, row_chunk;
  int has_bias, pixels_first;
} Conv;

// The first `left` of four numbers, and zeros.
static inline float4 load_some(global const float* p, long left) {
  if (left >= 4) return vload4(0, p);
  return (float4)(left > 0 ? p[0] : 0.0f, left > 1 ? p[1] : 0.0f, left > 2 ? p[2] : 0.0f, 0.0f);
}

static inline void store_some(float4 v, global float* p, long left) {
  if (left >= 4) {
    vstore4(v, 0, p);
    return;
  }
  if (left > 0) p[0] = v.s0;
  if (left > 1) p[1] = v.s1;
  if (left > 2) p[2] = v.s2;
}

// alpha * sums + beta * C of four columns, the first `left` of which are there.
static inline float4 with_addend(float4 v, global const float* c, long left, const Product* p) {
  if (p->alpha != 1.0f) v *= p->alpha;
  if (p->has_c == 0) return v;
  return fma((float4)p->beta, p->c_column == 0 ? (float4)c[0] : load_some(c, left), v);
}

// ---- what a work item reads: four numbers of A and of B, number `i` of those of its group ----

// Lines of a matrix that lies along the depth or across it, in runs: A of a product, and both sides of attention. `aligned`: all runs
// begin at 16 bytes.
#define EVN_LOAD(p, left, aligned) ((aligned) && (left) >= 4 ? *(global const float4*)(p) : load_some((p), (left)))
#define EVN_READ_STRIDED(i, from, first, count, line_step, depth_step, side, aligned)                                        \
  (depth_step == 1 ? ROUNDED(EVN_LOAD(from + (first + (i) / (kDepth / 4)) * line_step + at + (i) % (kDepth / 4) * 4,         \
                                      first + (i) / (kDepth / 4) < count ? end - at - (i) % (kDepth / 4) * 4 : 0, aligned))  \
                   : ROUNDED(EVN_LOAD(from + (at + (i) / (side / 4)) * depth_step + first + (i) % (side / 4) * 4,            \
                                      at + (i) / (side / 4) < end ? count - first - (i) % (side / 4) * 4 : 0, aligned)))
#define EVN_KEEP_STRIDED(i, v, tile, depth_step, side)                                    \
  if (depth_step == 1) {                                                                  \
    local float* to = (local float*)tile[slice][now] + (i) / (kDepth / 4);                \
    const int step = (i) % (kDepth / 4) * 4;                                              \
    to[(step + 0) * (side + 4)] = v.s0;                                                   \
    to[(step + 1) * (side + 4)] = v.s1;                                                   \
    to[(step + 2) * (side + 4)] = v.s2;                                                   \
    to[(step + 3) * (side + 4)] = v.s3;                                                   \
  } else {                                                                                \
    tile[slice][now][((i) / (side / 4)) * ((side + 4) / 4) + (i) % (side / 4)] = v;       \
  }
#define EVN_READ_LEFT(i) EVN_READ_STRIDED(i, left, row, p.m, p.a_row, p.a_step, kRows, left_aligned)
#define EVN_KEEP_LEFT(i, v) EVN_KEEP_STRIDED(i, v, a_tile, p.a_step, kRows)
#define EVN_READ_RIGHT(i) EVN_READ_STRIDED(i, right, column, p.n, s.b_line, s.b_step, kColumns, right_aligned)
#define EVN_KEEP_LINES(i, v) EVN_KEEP_STRIDED(i, v, b_tile, s.b_step, kColumns)

// Whether runs of lines that lie so begin at 16 bytes.
static inline bool begins_aligned(global const float* from, long line_step, long depth_step) {
  return (((ulong)from & 15) | ((depth_step == 1 ? line_step : depth_step) & 3)) == 0;
}

// B of a product, in panels.
#define EVN_READ_PANELS(i)                                                                                   \
  (at + (i) / (kColumns / 4) < end && column + (i) % (kColumns / 4) * 4 < panel_end                          \
       ? LOAD_STORED(right + (column + (i) % (kColumns / 4) * 4) / EVN_PANEL * EVN_PANEL * p.k +             \
                     (at + (i) / (kColumns / 4)) * EVN_PANEL + (column + (i) % (kColumns / 4) * 4) % EVN_PANEL) \
       : (float4)0.0f)
#define EVN_KEEP_RIGHT(i, v) b_tile[slice][now][((i) / (kColumns / 4)) * ((kColumns + 4) / 4) + (i) % (kColumns / 4)] = v;

// Weights, in blocks of 8 outputs.
#define EVN_READ_BLOCKS(i)                                                                                       \
  (at + (i) / 2 % kDepth < end && row + (i) / (2 * kDepth) * EVN_BLOCK < block_end                               \
       ? LOAD_STORED(left + (row + (i) / (2 * kDepth) * EVN_BLOCK) * p.k + (at + (i) / 2 % kDepth) * EVN_BLOCK + \
                     (i) % 2 * 4)                                                                                \
       : (float4)0.0f)
#define EVN_KEEP_BLOCKS(i, v) a_tile[slice][now][((i) / 2 % kDepth) * ((kRows + 4) / 4) + (i) / (2 * kDepth) * 2 + (i) % 2] = v;

// Pixels under one tap of one channel. `y`, `x`: where the window of each begins.
static inline float4 read_pixels(global const float* image, int step, int4 y, int4 x, const Conv* g) {
  const int taps = g->kernel_h * g->kernel_w;
  const int channel = step / taps, tap = step - channel * taps;
  const int tap_y = tap / g->kernel_w;
  y += tap_y * g->dilation_h;
  x += (tap - tap_y * g->kernel_w) * g->dilation_w;
  global const float* from = image + (long)channel * g->in_h * g->in_w;
  const int4 inside = y >= 0 && y < g->in_h && x >= 0 && x < g->in_w;
  const int4 index = y * g->in_w + x;
  return (float4)(inside.s0 ? from[index.s0] : 0.0f, inside.s1 ? from[index.s1] : 0.0f, inside.s2 ? from[index.s2] : 0.0f,
                  inside.s3 ? from[index.s3] : 0.0f);
}
#define EVN_READ_WINDOW(i) \
  (at + (i) / (kColumns / 4) < end ? ROUNDED(read_pixels(right, (int)at + (i) / (kColumns / 4), y_begin, x_begin, &g)) : (float4)0.0f)
#define EVN_READ_POINTS(i)                                                                         \
  ROUNDED(EVN_LOAD(right + (at + (i) / (kColumns / 4)) * p.n + column + (i) % (kColumns / 4) * 4,  \
                   at + (i) / (kColumns / 4) < end ? p.n - column - (i) % (kColumns / 4) * 4 : 0, right_aligned))

// ---- a tile ----

// Not inlined into each of the places that store: the steps are a switch of all kinds.
__attribute__((noinline)) static float4 apply_steps(float4 v, const Epilogue* e) { return apply_epilogue(v, e); }

// DOWN x ACROSS work items, each with 4 * DOWN4 rows and 4 * ACROSS4 columns; DEPTH steps at a time. SLICES such teams, 1 or 4, have a
// chain of the depth each; one team adds up its chains in registers. STAGES of both operands lie in local memory, one or two, with four
// numbers more to a row, so that what is written across rows goes to different banks. Small tiles have few work items to hide the time
// of a read behind: one stage of more steps.
#define EVN_SIZES(DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES)            \
  enum {                                                                          \
    kAcross = ACROSS,                                                             \
    kItems = DOWN * ACROSS,                                                       \
    kDown4 = DOWN4,                                                               \
    kAcross4 = ACROSS4,                                                           \
    kRows = DOWN * 4 * DOWN4,                                                     \
    kColumns = ACROSS * 4 * ACROSS4,                                              \
    kDepth = DEPTH,                                                               \
    kStages = STAGES,                                                             \
    kSlices = SLICES,                                                             \
    kReadsA = kRows * kDepth / 4 / kItems,                                        \
    kReadsB = kColumns * kDepth / 4 / kItems                                      \
  };                                                                              \
  local float4 a_tile[SLICES][STAGES][DEPTH * (DOWN * 4 * DOWN4 + 4) / 4];        \
  local float4 b_tile[SLICES][STAGES][DEPTH * (ACROSS * 4 * ACROSS4 + 4) / 4];    \
  const int item = kSlices == 1 ? get_local_id(0) : get_local_id(0) % kItems;     \
  const int slice = kSlices == 1 ? 0 : get_local_id(0) / kItems;                  \
  const long row_tiles = (p.m + kRows - 1) / kRows;                               \
  const long row = (long)get_group_id(0) % row_tiles * kRows;                     \
  const long column = (long)get_group_id(0) / row_tiles * kColumns;

#define EVN_READ_BOTH(READ_A, READ_B)                                                       \
  _Pragma("unroll") for (int r = 0; r < kReadsA; ++r) a_next[r] = READ_A(item + r * kItems); \
  _Pragma("unroll") for (int r = 0; r < kReadsB; ++r) b_next[r] = READ_B(item + r * kItems);
#define EVN_KEEP_BOTH(KEEP_A, KEEP_B)                                                             \
  _Pragma("unroll") for (int r = 0; r < kReadsA; ++r) { KEEP_A(item + r * kItems, a_next[r]) }    \
  _Pragma("unroll") for (int r = 0; r < kReadsB; ++r) { KEEP_B(item + r * kItems, b_next[r]) }

// The sums of a work item are parts of the tile where DOWN4 or ACROSS4 is 2, so that its group reads local memory in runs. `chain`: steps
// of one, a multiple of kDepth, or all. All slices take as many steps as the first, so that all meet at the barriers.
#define EVN_SUM(READ_A, KEEP_A, READ_B, KEEP_B)                                                              \
  float4 sums[4 * kDown4][kAcross4], total[4 * kDown4][kAcross4];                                            \
  _Pragma("unroll") for (int i = 0; i < 4 * kDown4; ++i) {                                                   \
    _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) sums[i][j] = total[i][j] = (float4)0.0f;            \
  }                                                                                                          \
  float4 a_next[kReadsA], b_next[kReadsB];                                                                   \
  long at = slice * chain;                                                                                   \
  const long steps = kSlices == 1 ? p.k : min(chain, p.k);                                                   \
  const long end = kSlices == 1 ? p.k : min(at + chain, p.k);                                                \
  long chain_left = chain;                                                                                   \
  int now = 0;                                                                                               \
  EVN_READ_BOTH(READ_A, READ_B)                                                                              \
  EVN_KEEP_BOTH(KEEP_A, KEEP_B)                                                                              \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                              \
  for (long done = 0; done < steps;) {                                                                       \
    at += kDepth;                                                                                            \
    done += kDepth;                                                                                          \
    if (done < steps) { EVN_READ_BOTH(READ_A, READ_B) }                                                      \
    _Pragma("unroll") for (int d = 0; d < kDepth; ++d) {                                                     \
      float4 b[kAcross4];                                                                                    \
      _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) {                                                 \
        b[j] = b_tile[slice][now][d * ((kColumns + 4) / 4) + j * (kColumns / (4 * kAcross4)) + item % kAcross]; \
      }                                                                                                      \
      _Pragma("unroll") for (int i = 0; i < kDown4; ++i) {                                                   \
        const float4 a = a_tile[slice][now][d * ((kRows + 4) / 4) + i * (kRows / (4 * kDown4)) + item / kAcross]; \
        _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) {                                               \
          sums[4 * i + 0][j] = fma((float4)a.s0, b[j], sums[4 * i + 0][j]);                                  \
          sums[4 * i + 1][j] = fma((float4)a.s1, b[j], sums[4 * i + 1][j]);                                  \
          sums[4 * i + 2][j] = fma((float4)a.s2, b[j], sums[4 * i + 2][j]);                                  \
          sums[4 * i + 3][j] = fma((float4)a.s3, b[j], sums[4 * i + 3][j]);                                  \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    if (kSlices == 1) {                                                                                      \
      chain_left -= kDepth;                                                                                  \
      if (chain_left == 0) {                                                                                 \
        chain_left = chain;                                                                                  \
        _Pragma("unroll") for (int i = 0; i < 4 * kDown4; ++i) {                                             \
          _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) {                                             \
            total[i][j] += sums[i][j];                                                                       \
            sums[i][j] = (float4)0.0f;                                                                       \
          }                                                                                                  \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    if (kStages == 2) now ^= 1;                                                                              \
    if (kStages == 1) barrier(CLK_LOCAL_MEM_FENCE);                                                          \
    if (done < steps) { EVN_KEEP_BOTH(KEEP_A, KEEP_B) }                                                      \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                            \
  }                                                                                                          \
  if (kSlices == 1) {                                                                                        \
    _Pragma("unroll") for (int i = 0; i < 4 * kDown4; ++i) {                                                 \
      _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) sums[i][j] += total[i][j];                        \
    }                                                                                                        \
  } else { EVN_ADD_SLICES }

// The sums of the other slices, in their order, by way of the memory that the tiles no longer need.
#define EVN_ADD_SLICES                                                                                                \
  local float4* parts = &a_tile[0][0][0];                                                                             \
  _Pragma("unroll") for (int i = 0; i < 4 * kDown4; ++i) {                                                            \
    _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) {                                                            \
      parts[slice * kItems + item] = sums[i][j];                                                                      \
      barrier(CLK_LOCAL_MEM_FENCE);                                                                                   \
      for (int other = 1; slice == 0 && other < kSlices; ++other) sums[i][j] += parts[other * kItems + item];         \
      barrier(CLK_LOCAL_MEM_FENCE);                                                                                   \
    }                                                                                                                 \
  }                                                                                                                   \
  if (slice != 0) return;

#define EVN_STORE(Y_ROW)                                                                                \
  _Pragma("unroll") for (int i = 0; i < 4 * kDown4; ++i) {                                              \
    const long r = row + i / 4 * (kRows / kDown4) + item / kAcross * 4 + i % 4;                         \
    if (r < p.m) {                                                                                      \
      _Pragma("unroll") for (int j = 0; j < kAcross4; ++j) {                                            \
        const long c_at = column + j * (kColumns / kAcross4) + item % kAcross * 4;                      \
        if (c_at < p.n) {                                                                               \
          float4 v = with_addend(sums[i][j], addend + r * p.c_row + c_at * p.c_column, p.n - c_at, &p); \
          if (e.count != 0) v = apply_steps(v, &e);                                                     \
          store_some(v, out + r * (Y_ROW) + c_at, p.n - c_at);                                          \
        }                                                                                               \
      }                                                                                                 \
    }                                                                                                   \
  }

// Grid: the work items of all tiles; products.
#define EVN_PRODUCT(NAME, DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES, READ)                                                \
  kernel __attribute__((reqd_work_group_size(DOWN * ACROSS * SLICES, 1, 1))) void NAME(                                             \
      global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0, global float* y, \
      ulong y0, Product p, Epilogue e, long chain) {                                                                                \
    EVN_SIZES(DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES)                                                                  \
    long rest = get_group_id(1), a_at = (long)a0, b_at = 0;                                                                         \
    for (int i = p.rank - 1; i >= 0; --i) {                                                                                         \
      a_at += rest % p.batch[i] * p.a_stride[i];                                                                                    \
      b_at += rest % p.batch[i] * p.b_stride[i];                                                                                    \
      rest /= p.batch[i];                                                                                                           \
    }                                                                                                                               \
    global const float* left = a + a_at;                                                                                            \
    global const STORED* right = (global const STORED*)(packed + packed0) + b_at * p.panels;                                        \
    global const float* addend = c + c0;                                                                                            \
    global float* out = y + y0 + get_group_id(1) * p.m * p.n;                                                                       \
    const long panel_end = (p.n + EVN_PANEL - 1) / EVN_PANEL * EVN_PANEL;                                                           \
    const bool left_aligned = begins_aligned(left, p.a_row, p.a_step);                                                              \
    EVN_SUM(EVN_READ_LEFT, EVN_KEEP_LEFT, READ, EVN_KEEP_RIGHT)                                                                     \
    EVN_STORE(p.n)                                                                                                                  \
  }

// Grid: the work items of all tiles; images and groups.
#define EVN_CONV(NAME, DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES, READ)                                                  \
  kernel __attribute__((reqd_work_group_size(DOWN * ACROSS * SLICES, 1, 1))) void NAME(                                            \
      global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias, ulong b0, global float* y, \
      ulong y0, Product p, Conv g, Epilogue e, long chain) {                                                                       \
    EVN_SIZES(DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES)                                                                 \
    const long place = get_group_id(1), group = place % g.groups;                                                                  \
    const long block_end = (long)g.blocks * EVN_BLOCK;                                                                             \
    global const STORED* left = (global const STORED*)(weights + w0) + group * block_end * p.k;                                    \
    global const float* right = x + x0 + place * g.channels * g.in_h * g.in_w;                                                     \
    global const float* addend = bias + b0 + group * block_end;                                                                    \
    global float* out = y + y0 + place * p.m * p.n;                                                                                \
    const bool right_aligned = begins_aligned(right, 0, p.n);                                                                      \
    const int4 pixel = min((int)column + item % (kColumns / 4) * 4 + (int4)(0, 1, 2, 3), (int4)((int)p.n - 1));                    \
    const int4 y_begin = pixel / g.out_w * g.stride_h - g.pad_h;                                                                   \
    const int4 x_begin = pixel % g.out_w * g.stride_w - g.pad_w;                                                                   \
    EVN_SUM(EVN_READ_BLOCKS, EVN_KEEP_BLOCKS, READ, EVN_KEEP_RIGHT)                                                                \
    EVN_STORE(p.n)                                                                                                                 \
  }

// The sizes of all, as tiled.h has them. (Each on a line of its own: program_text.h.)
EVN_PRODUCT(product_128x128, 16, 16, 2, 2, 8, 2, 1, EVN_READ_PANELS)
EVN_PRODUCT(product_128x64, 16, 16, 2, 1, 16, 2, 1, EVN_READ_PANELS)
EVN_PRODUCT(product_64x64, 16, 16, 1, 1, 16, 2, 1, EVN_READ_PANELS)
EVN_PRODUCT(product_64x64_4, 8, 8, 2, 2, 16, 1, 4, EVN_READ_PANELS)
EVN_PRODUCT(product_32x64_4, 8, 8, 1, 2, 16, 1, 4, EVN_READ_PANELS)
EVN_PRODUCT(product_32x32_4, 8, 8, 1, 1, 16, 1, 4, EVN_READ_PANELS)
EVN_PRODUCT(product_32x32, 8, 8, 1, 1, 32, 1, 1, EVN_READ_PANELS)
EVN_CONV(conv_128x128, 16, 16, 2, 2, 8, 2, 1, EVN_READ_WINDOW)
EVN_CONV(conv_128x64, 16, 16, 2, 1, 16, 2, 1, EVN_READ_WINDOW)
EVN_CONV(conv_64x64, 16, 16, 1, 1, 16, 2, 1, EVN_READ_WINDOW)
EVN_CONV(conv_64x64_4, 8, 8, 2, 2, 16, 1, 4, EVN_READ_WINDOW)
EVN_CONV(conv_32x64_4, 8, 8, 1, 2, 16, 1, 4, EVN_READ_WINDOW)
EVN_CONV(conv_32x32_4, 8, 8, 1, 1, 16, 1, 4, EVN_READ_WINDOW)
EVN_CONV(conv_32x32, 8, 8, 1, 1, 32, 1, 1, EVN_READ_WINDOW)
EVN_CONV(points_128x128, 16, 16, 2, 2, 8, 2, 1, EVN_READ_POINTS)
EVN_CONV(points_128x64, 16, 16, 2, 1, 16, 2, 1, EVN_READ_POINTS)
EVN_CONV(points_64x64, 16, 16, 1, 1, 16, 2, 1, EVN_READ_POINTS)
EVN_CONV(points_64x64_4, 8, 8, 2, 2, 16, 1, 4, EVN_READ_POINTS)
EVN_CONV(points_32x64_4, 8, 8, 1, 2, 16, 1, 4, EVN_READ_POINTS)
EVN_CONV(points_32x32_4, 8, 8, 1, 1, 16, 1, 4, EVN_READ_POINTS)
EVN_CONV(points_32x32, 8, 8, 1, 1, 32, 1, 1, EVN_READ_POINTS)

// Both sides of a product where they lie, for the heads of attention.
typedef struct {
  long heads;
  long a[2], b[2], c[2], y[2];  // steps from an image and from a head to the next
  long b_line, b_step;          // along the columns of the result and along the depth
  long y_row;
} Strided;

// Grid: the work items of all tiles; images and heads.
#define EVN_STRIDED(NAME, DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES, READ)                                           \
  kernel __attribute__((reqd_work_group_size(DOWN * ACROSS * SLICES, 1, 1))) void NAME(                                        \
      global const float* a, ulong a0, global const float* b_side, ulong b0, global const float* c, ulong c0, global float* y, \
      ulong y0, Product p, Strided s, Epilogue e, long chain) {                                                                \
    EVN_SIZES(DOWN, ACROSS, DOWN4, ACROSS4, DEPTH, STAGES, SLICES)                                                             \
    const long image = get_group_id(1) / s.heads, head = get_group_id(1) % s.heads;                                            \
    global const float* left = a + a0 + image * s.a[0] + head * s.a[1];                                                        \
    global const float* right = b_side + b0 + image * s.b[0] + head * s.b[1];                                                  \
    global const float* addend = c + c0 + image * s.c[0] + head * s.c[1];                                                      \
    global float* out = y + y0 + image * s.y[0] + head * s.y[1];                                                               \
    const bool left_aligned = begins_aligned(left, p.a_row, p.a_step);                                                         \
    const bool right_aligned = begins_aligned(right, s.b_line, s.b_step);                                                      \
    EVN_SUM(EVN_READ_LEFT, EVN_KEEP_LEFT, READ, EVN_KEEP_LINES)                                                                \
    EVN_STORE(s.y_row)                                                                                                         \
  }

#ifndef EVN_HALF
EVN_STRIDED(strided_128x128, 16, 16, 2, 2, 8, 2, 1, EVN_READ_RIGHT)
EVN_STRIDED(strided_128x64, 16, 16, 2, 1, 16, 2, 1, EVN_READ_RIGHT)
EVN_STRIDED(strided_64x64, 16, 16, 1, 1, 16, 2, 1, EVN_READ_RIGHT)
EVN_STRIDED(strided_64x64_4, 8, 8, 2, 2, 16, 1, 4, EVN_READ_RIGHT)
EVN_STRIDED(strided_32x64_4, 8, 8, 1, 2, 16, 1, 4, EVN_READ_RIGHT)
EVN_STRIDED(strided_32x32_4, 8, 8, 1, 1, 16, 1, 4, EVN_READ_RIGHT)
EVN_STRIDED(strided_32x32, 8, 8, 1, 1, 32, 1, 1, EVN_READ_RIGHT)
#endif

// A product of few rows: a group brings a panel's next steps to local memory together, and a work item to each column adds them up while the
// next ones are read. Grid: the work items of all panels, rows, products.
#define EVN_FEW_GROUP 256
#define EVN_FEW_STEPS 128
#define EVN_FEW_READS (EVN_FEW_STEPS * EVN_PANEL / 4 / EVN_FEW_GROUP)
kernel __attribute__((reqd_work_group_size(EVN_FEW_GROUP, 1, 1))) void product_few(
    global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0, global float* y, ulong y0,
    Product p, Epilogue e, long chain) {
  local float4 steps[EVN_FEW_STEPS * EVN_PANEL / 4];
  local float rows[EVN_FEW_STEPS];
  const int item = get_local_id(0);
  const long panel = get_group_id(0), row = get_global_id(1), column = panel * EVN_PANEL + item;
  long rest = get_global_id(2), a_at = (long)a0 + row * p.a_row, b_at = 0;
  for (int i = p.rank - 1; i >= 0; --i) {
    a_at += rest % p.batch[i] * p.a_stride[i];
    b_at += rest % p.batch[i] * p.b_stride[i];
    rest /= p.batch[i];
  }
  global const float* left = a + a_at;
  global const STORED* right = (global const STORED*)(packed + packed0) + b_at * p.panels + panel * EVN_PANEL * p.k;
  float total = 0.0f, sum = 0.0f, next_row = 0.0f;
  float4 next[EVN_FEW_READS];
#define EVN_READ_AHEAD(at)                                                                                   \
  _Pragma("unroll") for (int r = 0; r < EVN_FEW_READS; ++r) {                                                \
    const long i = item + r * EVN_FEW_GROUP;                                                                 \
    next[r] = (at) + i * 4 / EVN_PANEL < p.k ? LOAD_STORED(right + (at) * EVN_PANEL + i * 4) : (float4)0.0f; \
  }                                                                                                          \
  if (item < EVN_FEW_STEPS && (at) + item < p.k) next_row = ROUNDED1(left[((at) + item) * p.a_step]);
  EVN_READ_AHEAD(0L)
  long chain_end = min(chain, p.k);
  for (long at = 0; at < p.k;) {
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (int r = 0; r < EVN_FEW_READS; ++r) steps[item + r * EVN_FEW_GROUP] = next[r];
    if (item < EVN_FEW_STEPS) rows[item] = next_row;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int count = (int)min(chain_end - at, (long)EVN_FEW_STEPS);
    at += count;
    EVN_READ_AHEAD(at)
    if (item < EVN_PANEL) {
      local const float* mine = (local const float*)steps + item;
      _Pragma("unroll 16") for (int d = 0; d < count; ++d) sum = fma(rows[d], mine[d * EVN_PANEL], sum);
    }
    if (at == chain_end) {
      chain_end = min(chain_end + chain, p.k);
      total += sum;
      sum = 0.0f;
    }
  }
  if (item >= EVN_PANEL || column >= p.n) return;
  total *= p.alpha;
  if (p.has_c) total = fma(p.beta, c[c0 + row * p.c_row + column * p.c_column], total);
  y[y0 + (get_global_id(2) * p.m + row) * p.n + column] = apply_epilogue(total, &e);
}

// A convolution of 1 x 1 over at most 4 pixels, as behind a global pool: the items of a group share the depth of a block of outputs.
// Grid: the work items of all blocks; images and groups.
#define EVN_FEW_PIXELS 4
#define EVN_FEW_ITEMS 64
#define EVN_FEW_CHAIN 256  // steps of an item that are added up by themselves, as long chains round more
kernel __attribute__((reqd_work_group_size(EVN_FEW_ITEMS, 1, 1))) void points_few(
    global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias, ulong b0, global float* y, ulong y0,
    Product p, Conv g, Epilogue e) {
  local float4 parts[EVN_FEW_ITEMS][2];
  const int item = get_local_id(0);
  const long block = get_group_id(0), place = get_group_id(1), group = place % g.groups;
  global const STORED* left = (global const STORED*)(weights + w0) + (group * g.blocks + block) * EVN_BLOCK * p.k;
  global const float* right = x + x0 + place * g.channels * p.n;
  float4 low[EVN_FEW_PIXELS], high[EVN_FEW_PIXELS], all_low[EVN_FEW_PIXELS], all_high[EVN_FEW_PIXELS];
  _Pragma("unroll") for (int i = 0; i < EVN_FEW_PIXELS; ++i) low[i] = high[i] = all_low[i] = all_high[i] = (float4)0.0f;
  int left_of_chain = EVN_FEW_CHAIN;
  for (long k = item; k < p.k; k += EVN_FEW_ITEMS) {
    const float4 a = LOAD_STORED(left + k * EVN_BLOCK), b = LOAD_STORED(left + k * EVN_BLOCK + 4);
    _Pragma("unroll") for (int i = 0; i < EVN_FEW_PIXELS; ++i) {
      if (i < p.n) {
        const float v = ROUNDED1(right[k * p.n + i]);
        low[i] = fma((float4)v, a, low[i]);
        high[i] = fma((float4)v, b, high[i]);
      }
    }
    if (--left_of_chain != 0) continue;
    left_of_chain = EVN_FEW_CHAIN;
    _Pragma("unroll") for (int i = 0; i < EVN_FEW_PIXELS; ++i) {
      all_low[i] += low[i];
      all_high[i] += high[i];
      low[i] = high[i] = (float4)0.0f;
    }
  }
  _Pragma("unroll") for (int i = 0; i < EVN_FEW_PIXELS; ++i) {
    parts[item][0] = all_low[i] + low[i];
    parts[item][1] = all_high[i] + high[i];
    for (int half_of = EVN_FEW_ITEMS / 2; half_of > 0; half_of /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_of) {
        parts[item][0] += parts[item + half_of][0];
        parts[item][1] += parts[item + half_of][1];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const long output = block * EVN_BLOCK + item;
    if (i < p.n && item < EVN_BLOCK && output < p.m) {
      float sum = ((local float*)parts)[item] * p.alpha;
      if (p.has_c) sum = fma(p.beta, bias[b0 + group * g.blocks * EVN_BLOCK + output], sum);
      y[y0 + (place * p.m + output) * p.n + i] = apply_epilogue(sum, &e);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

// A depthwise convolution, weights as the model has them. Grid: pixels of the output, channels, images.
EVN_KERNEL void depthwise(global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias, ulong b0,
                          global float* y, ulong y0, Conv g, Epilogue e) {
  const int pixel = get_global_id(0), pixels = g.out_h * g.out_w;
  if (pixel >= pixels) return;
  const int channel = get_global_id(1);
  const long place = (long)get_global_id(2) * g.groups * g.outputs + channel;
  global const float* in = x + x0 + ((long)get_global_id(2) * g.groups + channel / g.outputs) * g.in_h * g.in_w;
  global const float* w = weights + w0 + (long)channel * g.kernel_h * g.kernel_w;
  const int top = pixel / g.out_w * g.stride_h - g.pad_h, start = pixel % g.out_w * g.stride_w - g.pad_w;
  float sum = g.has_bias ? bias[b0 + channel] : 0.0f;
  for (int ky = 0; ky < g.kernel_h; ++ky) {
    const int row = top + ky * g.dilation_h;
    if (row < 0 || row >= g.in_h) continue;
    for (int kx = 0; kx < g.kernel_w; ++kx) {
      const int at = start + kx * g.dilation_w;
      if (at >= 0 && at < g.in_w) sum = fma(w[ky * g.kernel_w + kx], in[row * g.in_w + at], sum);
    }
  }
  y[y0 + place * pixels + pixel] = apply_epilogue(sum, &e);
}
