// Products of matrices and convolutions for GPUs. A work group makes a tile of the output: some steps of the depth of both operands lie
// in local memory while the next ones are read, and a work item keeps 4 x 4 or 8 x 8 sums, one chain of fused multiply-adds to each
// element in the order of the depth (of small convolutions four chains, added up in their order). Right-hand matrices are in the panels of matmul.cl, weights in the blocks of conv.cl. With
// EVN_HALF those are halves, and the other operand is rounded to halves as it is read.

#ifdef EVN_HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define STORED half
#define LOAD_STORED(p) vload_half4(0, (p))
#define ROUNDED(v) convert_float4(convert_half4(v))
#define ROUNDED1(x) ((float)(half)(x))
#else
#define STORED float
#define LOAD_STORED(p) vload4(0, (p))
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
  int has_bias;
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

// Lines of a matrix that lies along the depth or across it, in runs: A of a product, and both sides of attention.
#define EVN_READ_STRIDED(i, from, first, count, line_step, depth_step)                                                \
  (depth_step == 1 ? ROUNDED(load_some(from + (first + (i) / (kDepth / 4)) * line_step + at + (i) % (kDepth / 4) * 4, \
                                       first + (i) / (kDepth / 4) < count ? p.k - at - (i) % (kDepth / 4) * 4 : 0))   \
                   : ROUNDED(load_some(from + (at + (i) / (kSide / 4)) * depth_step + first + (i) % (kSide / 4) * 4,  \
                                       at + (i) / (kSide / 4) < p.k ? count - first - (i) % (kSide / 4) * 4 : 0)))
#define EVN_KEEP_STRIDED(i, v, tile, depth_step)                                  \
  if (depth_step == 1) {                                                          \
    local float* to = (local float*)tile[slice][now] + (i) / (kDepth / 4);        \
    const int step = (i) % (kDepth / 4) * 4;                                      \
    to[(step + 0) * kPitch] = v.s0;                                               \
    to[(step + 1) * kPitch] = v.s1;                                               \
    to[(step + 2) * kPitch] = v.s2;                                               \
    to[(step + 3) * kPitch] = v.s3;                                               \
  } else {                                                                        \
    tile[slice][now][((i) / (kSide / 4)) * (kPitch / 4) + (i) % (kSide / 4)] = v; \
  }
#define EVN_READ_LEFT(i) EVN_READ_STRIDED(i, left, row, p.m, p.a_row, p.a_step)
#define EVN_KEEP_LEFT(i, v) EVN_KEEP_STRIDED(i, v, a_tile, p.a_step)
#define EVN_READ_RIGHT(i) EVN_READ_STRIDED(i, right, column, p.n, s.b_line, s.b_step)
#define EVN_KEEP_LINES(i, v) EVN_KEEP_STRIDED(i, v, b_tile, s.b_step)

// B of a product, in panels.
#define EVN_READ_PANELS(i)                                                                                \
  (at + (i) / (kSide / 4) < p.k && column + (i) % (kSide / 4) * 4 < panel_end                             \
       ? LOAD_STORED(right + (column + (i) % (kSide / 4) * 4) / EVN_PANEL * EVN_PANEL * p.k +             \
                     (at + (i) / (kSide / 4)) * EVN_PANEL + (column + (i) % (kSide / 4) * 4) % EVN_PANEL) \
       : (float4)0.0f)
#define EVN_KEEP_RIGHT(i, v) b_tile[slice][now][((i) / (kSide / 4)) * (kPitch / 4) + (i) % (kSide / 4)] = v;

// Weights, in blocks of 8 outputs.
#define EVN_READ_BLOCKS(i)                                                                                       \
  (at + (i) / 2 % kDepth < p.k && row + (i) / (2 * kDepth) * EVN_BLOCK < block_end                               \
       ? LOAD_STORED(left + (row + (i) / (2 * kDepth) * EVN_BLOCK) * p.k + (at + (i) / 2 % kDepth) * EVN_BLOCK + \
                     (i) % 2 * 4)                                                                                \
       : (float4)0.0f)
#define EVN_KEEP_BLOCKS(i, v) a_tile[slice][now][((i) / 2 % kDepth) * (kPitch / 4) + (i) / (2 * kDepth) * 2 + (i) % 2] = v;

// Pixels under one tap of one channel. `y`, `x`: where the window of each begins.
static inline float4 read_pixels(global const float* image, long step, int4 y, int4 x, const Conv* g) {
  const int taps = g->kernel_h * g->kernel_w;
  const int channel = (int)(step / taps), tap = (int)(step % taps);
  y += tap / g->kernel_w * g->dilation_h;
  x += tap % g->kernel_w * g->dilation_w;
  global const float* from = image + (long)channel * g->in_h * g->in_w;
  const int4 inside = y >= 0 && y < g->in_h && x >= 0 && x < g->in_w;
  const int4 index = y * g->in_w + x;
  return (float4)(inside.s0 ? from[index.s0] : 0.0f, inside.s1 ? from[index.s1] : 0.0f, inside.s2 ? from[index.s2] : 0.0f,
                  inside.s3 ? from[index.s3] : 0.0f);
}
#define EVN_READ_WINDOW(i) (at + (i) / (kSide / 4) < p.k ? ROUNDED(read_pixels(right, at + (i) / (kSide / 4), y_begin, x_begin, &g)) : (float4)0.0f)
#define EVN_READ_POINTS(i)                                                                   \
  ROUNDED(load_some(right + (at + (i) / (kSide / 4)) * p.n + column + (i) % (kSide / 4) * 4, \
                    at + (i) / (kSide / 4) < p.k ? p.n - column - (i) % (kSide / 4) * 4 : 0))

// ---- a tile ----

// Not inlined into each of the places that store: the steps are a switch of all kinds.
__attribute__((noinline)) static float4 apply_steps(float4 v, const Epilogue* e) { return apply_epilogue(v, e); }

// ACROSS x ACROSS work items, each with 4 * PER4 rows and columns; DEPTH steps at a time. SLICES such teams have their part of the depth each,
// taken in turns. STAGES of both operands lie in local memory, one or two, at most 32 KiB in all, with four numbers more to a row, so that what
// is written across rows goes to different banks. Small tiles have few work items to hide the time of a read behind: one stage of more steps.
#define EVN_SIZES(ACROSS, PER4, DEPTH, STAGES, SLICES)                        \
  enum {                                                                      \
    kAcross = ACROSS,                                                         \
    kItems = ACROSS * ACROSS,                                                 \
    kPer4 = PER4,                                                             \
    kSide = ACROSS * 4 * PER4,                                                \
    kDepth = DEPTH,                                                           \
    kStages = STAGES,                                                         \
    kSlices = SLICES,                                                         \
    kPitch = kSide + 4,                                                       \
    kReads = kSide * kDepth / 4 / kItems                                      \
  };                                                                          \
  local float4 a_tile[SLICES][STAGES][DEPTH * (ACROSS * 4 * PER4 + 4) / 4];   \
  local float4 b_tile[SLICES][STAGES][DEPTH * (ACROSS * 4 * PER4 + 4) / 4];   \
  const int item = kSlices == 1 ? get_local_id(0) : get_local_id(0) % kItems; \
  const int slice = kSlices == 1 ? 0 : get_local_id(0) / kItems;              \
  const long row_tiles = (p.m + kSide - 1) / kSide;                           \
  const long row = (long)get_group_id(0) % row_tiles * kSide;                 \
  const long column = (long)get_group_id(0) / row_tiles * kSide;

// The sums of a work item are two by two parts of the tile where PER4 is 2, so that its group reads local memory in runs.
#define EVN_SUM(READ_A, KEEP_A, READ_B, KEEP_B)                                                   \
  float4 sums[4 * kPer4][kPer4];                                                                  \
  _Pragma("unroll") for (int i = 0; i < 4 * kPer4; ++i) {                                         \
    _Pragma("unroll") for (int j = 0; j < kPer4; ++j) sums[i][j] = (float4)0.0f;                  \
  }                                                                                               \
  float4 a_next[kReads], b_next[kReads];                                                          \
  long at = slice * kDepth;                                                                       \
  int now = 0;                                                                                    \
  _Pragma("unroll") for (int r = 0; r < kReads; ++r) {                                            \
    a_next[r] = READ_A(item + r * kItems);                                                        \
    b_next[r] = READ_B(item + r * kItems);                                                        \
  }                                                                                               \
  _Pragma("unroll") for (int r = 0; r < kReads; ++r) {                                            \
    KEEP_A(item + r * kItems, a_next[r])                                                          \
    KEEP_B(item + r * kItems, b_next[r])                                                          \
  }                                                                                               \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
  for (long done = 0; done < p.k;) {                                                              \
    at += kDepth * kSlices;                                                                       \
    done += kDepth * kSlices;                                                                     \
    if (done < p.k) {                                                                             \
      _Pragma("unroll") for (int r = 0; r < kReads; ++r) {                                        \
        a_next[r] = READ_A(item + r * kItems);                                                    \
        b_next[r] = READ_B(item + r * kItems);                                                    \
      }                                                                                           \
    }                                                                                             \
    _Pragma("unroll") for (int d = 0; d < kDepth; ++d) {                                          \
      float4 b[kPer4];                                                                            \
      _Pragma("unroll") for (int j = 0; j < kPer4; ++j) {                                         \
        b[j] = b_tile[slice][now][d * (kPitch / 4) + j * (kSide / 8) + item % kAcross];           \
      }                                                                                           \
      _Pragma("unroll") for (int i = 0; i < kPer4; ++i) {                                         \
        const float4 a = a_tile[slice][now][d * (kPitch / 4) + i * (kSide / 8) + item / kAcross]; \
        _Pragma("unroll") for (int j = 0; j < kPer4; ++j) {                                       \
          sums[4 * i + 0][j] = fma((float4)a.s0, b[j], sums[4 * i + 0][j]);                       \
          sums[4 * i + 1][j] = fma((float4)a.s1, b[j], sums[4 * i + 1][j]);                       \
          sums[4 * i + 2][j] = fma((float4)a.s2, b[j], sums[4 * i + 2][j]);                       \
          sums[4 * i + 3][j] = fma((float4)a.s3, b[j], sums[4 * i + 3][j]);                       \
        }                                                                                         \
      }                                                                                           \
    }                                                                                             \
    if (kStages == 2) now ^= 1;                                                                   \
    if (kStages == 1) barrier(CLK_LOCAL_MEM_FENCE);                                               \
    if (done < p.k) {                                                                             \
      _Pragma("unroll") for (int r = 0; r < kReads; ++r) {                                        \
        KEEP_A(item + r * kItems, a_next[r])                                                      \
        KEEP_B(item + r * kItems, b_next[r])                                                      \
      }                                                                                           \
    }                                                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
  }

// The sums of the other slices, in their order (PER4 is 1).
#define EVN_ADD_SLICES                                                                 \
  local float4 parts[kSlices - 1][4][kItems];                                          \
  if (slice != 0) {                                                                    \
    for (int i = 0; i < 4; ++i) parts[slice - 1][i][item] = sums[i][0];                \
  }                                                                                    \
  barrier(CLK_LOCAL_MEM_FENCE);                                                        \
  if (slice != 0) return;                                                              \
  for (int other = 0; other < kSlices - 1; ++other) {                                  \
    _Pragma("unroll") for (int i = 0; i < 4; ++i) sums[i][0] += parts[other][i][item]; \
  }

#define EVN_STORE(Y_ROW)                                                                                \
  _Pragma("unroll") for (int i = 0; i < 4 * kPer4; ++i) {                                               \
    const long r = row + i / 4 * (kSide / 2) + item / kAcross * 4 + i % 4;                              \
    if (r < p.m) {                                                                                      \
      _Pragma("unroll") for (int j = 0; j < kPer4; ++j) {                                               \
        const long c_at = column + j * (kSide / 2) + item % kAcross * 4;                                \
        if (c_at < p.n) {                                                                               \
          float4 v = with_addend(sums[i][j], addend + r * p.c_row + c_at * p.c_column, p.n - c_at, &p); \
          if (e.count != 0) v = apply_steps(v, &e);                                                     \
          store_some(v, out + r * (Y_ROW) + c_at, p.n - c_at);                                          \
        }                                                                                               \
      }                                                                                                 \
    }                                                                                                   \
  }

// Grid: the work items of all tiles; products.
#define EVN_PRODUCT(NAME, ACROSS, PER4, DEPTH, STAGES)                                                                              \
  kernel __attribute__((reqd_work_group_size(ACROSS * ACROSS, 1, 1))) void NAME(                                                    \
      global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0, global float* y, \
      ulong y0, Product p, Epilogue e) {                                                                                            \
    EVN_SIZES(ACROSS, PER4, DEPTH, STAGES, 1)                                                                                       \
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
    EVN_SUM(EVN_READ_LEFT, EVN_KEEP_LEFT, EVN_READ_PANELS, EVN_KEEP_RIGHT)                                                          \
    EVN_STORE(p.n)                                                                                                                  \
  }

// Grid: the work items of all tiles; images and groups.
#define EVN_CONV(NAME, ACROSS, PER4, DEPTH, STAGES, SLICES, READ, ADD)                                                             \
  kernel __attribute__((reqd_work_group_size(ACROSS * ACROSS * SLICES, 1, 1))) void NAME(                                          \
      global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias, ulong b0, global float* y, \
      ulong y0, Product p, Conv g, Epilogue e) {                                                                                   \
    EVN_SIZES(ACROSS, PER4, DEPTH, STAGES, SLICES)                                                                                 \
    const long place = get_group_id(1), group = place % g.groups;                                                                  \
    const long block_end = (long)g.blocks * EVN_BLOCK;                                                                             \
    global const STORED* left = (global const STORED*)(weights + w0) + group * block_end * p.k;                                    \
    global const float* right = x + x0 + place * g.channels * g.in_h * g.in_w;                                                     \
    global const float* addend = bias + b0 + group * block_end;                                                                    \
    global float* out = y + y0 + place * p.m * p.n;                                                                                \
    const int4 pixel = min((int)column + item % (kSide / 4) * 4 + (int4)(0, 1, 2, 3), (int4)((int)p.n - 1));                       \
    const int4 y_begin = pixel / g.out_w * g.stride_h - g.pad_h;                                                                   \
    const int4 x_begin = pixel % g.out_w * g.stride_w - g.pad_w;                                                                   \
    EVN_SUM(EVN_READ_BLOCKS, EVN_KEEP_BLOCKS, READ, EVN_KEEP_RIGHT)                                                                \
    ADD                                                                                                                            \
    EVN_STORE(p.n)                                                                                                                 \
  }

EVN_PRODUCT(product_128, 16, 2, 8, 2)
EVN_PRODUCT(product_64, 16, 1, 16, 2)
EVN_PRODUCT(product_32, 8, 1, 32, 1)
EVN_CONV(conv_128, 16, 2, 8, 2, 1, EVN_READ_WINDOW, )
EVN_CONV(conv_64, 16, 1, 16, 2, 1, EVN_READ_WINDOW, )
EVN_CONV(conv_32, 8, 1, 16, 1, 4, EVN_READ_WINDOW, EVN_ADD_SLICES)
EVN_CONV(points_128, 16, 2, 8, 2, 1, EVN_READ_POINTS, )
EVN_CONV(points_64, 16, 1, 16, 2, 1, EVN_READ_POINTS, )
EVN_CONV(points_32, 8, 1, 16, 1, 4, EVN_READ_POINTS, EVN_ADD_SLICES)

// Both sides of a product where they lie, for the heads of attention.
typedef struct {
  long heads;
  long a[2], b[2], c[2], y[2];  // steps from an image and from a head to the next
  long b_line, b_step;          // along the columns of the result and along the depth
  long y_row;
} Strided;

// Grid: the work items of all tiles; images and heads.
#define EVN_STRIDED(NAME, ACROSS, PER4, DEPTH, STAGES)                                                                         \
  kernel __attribute__((reqd_work_group_size(ACROSS * ACROSS, 1, 1))) void NAME(                                               \
      global const float* a, ulong a0, global const float* b_side, ulong b0, global const float* c, ulong c0, global float* y, \
      ulong y0, Product p, Strided s, Epilogue e) {                                                                            \
    EVN_SIZES(ACROSS, PER4, DEPTH, STAGES, 1)                                                                                  \
    const long image = get_group_id(1) / s.heads, head = get_group_id(1) % s.heads;                                            \
    global const float* left = a + a0 + image * s.a[0] + head * s.a[1];                                                        \
    global const float* right = b_side + b0 + image * s.b[0] + head * s.b[1];                                                  \
    global const float* addend = c + c0 + image * s.c[0] + head * s.c[1];                                                      \
    global float* out = y + y0 + image * s.y[0] + head * s.y[1];                                                               \
    EVN_SUM(EVN_READ_LEFT, EVN_KEEP_LEFT, EVN_READ_RIGHT, EVN_KEEP_LINES)                                                      \
    EVN_STORE(s.y_row)                                                                                                         \
  }

#ifndef EVN_HALF
EVN_STRIDED(strided_128, 16, 2, 8, 2)
EVN_STRIDED(strided_64, 16, 1, 16, 2)
EVN_STRIDED(strided_32, 8, 1, 32, 1)
#endif

// A product of few rows: a group brings a panel's next steps to local memory together, and a work item to each column adds them up while the
// next ones are read. Grid: the work items of all panels, rows, products.
#define EVN_FEW_GROUP 256
#define EVN_FEW_STEPS 128
#define EVN_FEW_READS (EVN_FEW_STEPS * EVN_PANEL / 4 / EVN_FEW_GROUP)
kernel __attribute__((reqd_work_group_size(EVN_FEW_GROUP, 1, 1))) void product_few(
    global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0, global float* y, ulong y0,
    Product p, Epilogue e) {
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
  float sum = 0.0f, next_row = 0.0f;
  float4 next[EVN_FEW_READS];
#define EVN_READ_AHEAD(at)                                                                                   \
  _Pragma("unroll") for (int r = 0; r < EVN_FEW_READS; ++r) {                                                \
    const long i = item + r * EVN_FEW_GROUP;                                                                 \
    next[r] = (at) + i * 4 / EVN_PANEL < p.k ? LOAD_STORED(right + (at) * EVN_PANEL + i * 4) : (float4)0.0f; \
  }                                                                                                          \
  if (item < EVN_FEW_STEPS && (at) + item < p.k) next_row = ROUNDED1(left[((at) + item) * p.a_step]);
  EVN_READ_AHEAD(0L)
  for (long at = 0; at < p.k; at += EVN_FEW_STEPS) {
    barrier(CLK_LOCAL_MEM_FENCE);
    _Pragma("unroll") for (int r = 0; r < EVN_FEW_READS; ++r) steps[item + r * EVN_FEW_GROUP] = next[r];
    if (item < EVN_FEW_STEPS) rows[item] = next_row;
    barrier(CLK_LOCAL_MEM_FENCE);
    EVN_READ_AHEAD(at + EVN_FEW_STEPS)
    if (item < EVN_PANEL) {
      local const float* mine = (local const float*)steps + item;
      const int count = (int)min(p.k - at, (long)EVN_FEW_STEPS);
      _Pragma("unroll 16") for (int d = 0; d < count; ++d) sum = fma(rows[d], mine[d * EVN_PANEL], sum);
    }
  }
  if (item >= EVN_PANEL || column >= p.n) return;
  sum *= p.alpha;
  if (p.has_c) sum = fma(p.beta, c[c0 + row * p.c_row + column * p.c_column], sum);
  y[y0 + (get_global_id(2) * p.m + row) * p.n + column] = apply_epilogue(sum, &e);
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
