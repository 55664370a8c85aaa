// Convolutions and transposed convolutions with a stride of the kernel's size. A work item makes a tile of 8 output channels by one
// or two vectors of pixels, chains of EVN_CHAIN fused multiply-adds to each; weights are packed [blocks of 8][inputs][taps][8]. With
// EVN_HALF weights and the padded copy are halves in memory, and what is read where it lies is rounded; sums are float32.

#if EVN_LANES == 8
#define EVN_TILE 1  // vectors: 16 registers hold 8 sums and no more
#else
#define EVN_TILE 2
#endif
#define EVN_COLUMNS (EVN_TILE * EVN_LANES)
#define EVN_CHAIN 1024  // longer ones round more

#ifdef EVN_HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define STORED half
#define LOADS(p) EVN_CAT(vload_half, EVN_LANES)(0, (p))
#define STORES(v, p) EVN_CAT(EVN_CAT(vstore_half, EVN_LANES), _rte)((v), 0, (p))
#define ROUNDED(v) EVN_CAT(convert_float, EVN_LANES)(EVN_CAT(convert_half, EVN_LANES)(v))
#define ROUNDED1(x) ((float)(half)(x))
#define LOAD_WEIGHTS(i, w) vload_half8((i), (w))
#define EVN_WEIGHTS const float8 weight = LOAD_WEIGHTS(0, w);
#define WEIGHT(m) weight.s##m
#else
#define STORED float
#define LOADS(p) LOADV(p)
#define STORES(v, p) STOREV(v, p)
#define ROUNDED(v) (v)
#define ROUNDED1(x) (x)
#define LOAD_WEIGHTS(i, w) vload8((i), (w))
#define EVN_WEIGHTS
#define WEIGHT(m) w[m]
#endif
#define EVN_PER_FLOAT (4 / sizeof(STORED))  // a buffer's first element is counted in floats

typedef struct {
  int channels;      // input channels of a group
  int outputs;       // output channels of a group (of a transposed convolution: times taps)
  int groups;
  int blocks;        // blocks of 8 outputs in a group
  int in_h, in_w;
  int out_h, out_w;
  int kernel_h, kernel_w;
  int stride_h, stride_w;
  int dilation_h, dilation_w;
  int pad_h, pad_w;  // at the beginning
  int padded_h;      // rows of the padded copy
  int phase_w;       // columns of a row of the padded copy that are stride_w apart in the input
  int row_chunk;     // rows of one work item
  int has_bias;
  int pixels_first;  // 1: all pixels of a block of outputs come before those of the next: weights are read once
} Conv;

// yes ? a : b, of the identifiers of a work item. PoCL 3.1 cannot link a kernel that chooses between these by a branch.
#define EVN_CHOOSE(yes, a, b) ((b) + ((a) - (b)) * (yes))

#define EVN_ROWS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define EVN_ADD1(m) a[m] = fma((VF)WEIGHT(m), v0, a[m]);
#define EVN_ADD2(m)              \
  {                              \
    const VF s = (VF)WEIGHT(m);  \
    a[m] = fma(s, v0, a[m]);     \
    b[m] = fma(s, v1, b[m]);     \
  }
#define EVN_COPY1(m) b[m] = a[m];
#define EVN_COPY EVN_ROWS(EVN_COPY1)
#define EVN_KEEP1(m) sums[m * EVN_TILE] = sums[m * EVN_TILE + EVN_TILE - 1] = a[m];
#define EVN_KEEP2(m)           \
  sums[m * EVN_TILE] = a[m];   \
  sums[m * EVN_TILE + 1] = b[m];
// The chains of a and b end: they are added to `sums`, and others begin at 0. EVN_ADD_SUMS adds `sums` to the last ones.
#define EVN_END_CHAIN1(m)     \
  sums[m * EVN_TILE] += a[m]; \
  a[m] = (VF)0.0f;
#define EVN_END_CHAIN2(m)         \
  EVN_END_CHAIN1(m)               \
  sums[m * EVN_TILE + 1] += b[m]; \
  b[m] = (VF)0.0f;
#define EVN_ADD_SUMS1(m) a[m] += sums[m * EVN_TILE];
#define EVN_ADD_SUMS2(m) \
  EVN_ADD_SUMS1(m)       \
  b[m] += sums[m * EVN_TILE + 1];
#define EVN_WRITE1(m) STOREV(clamp_to(a[m], bounds.low, bounds.high), out + m * plane);
#define EVN_WRITE2(m)                                                                  \
  STOREV(clamp_to(a[m], bounds.low, bounds.high), out + m * plane);                    \
  STOREV(clamp_to(b[m], bounds.low, bounds.high), out + m * plane + EVN_LANES);

// The input with its zero border, so that no tap needs a look at the edges; a row's columns are sorted by their remainder modulo
// stride_w, so that taps read vectors. Grid: padded rows, images * channels.
EVN_KERNEL void conv_pad(global const float* x, ulong x0, global STORED* padded, ulong padded0, Conv p) {
  const int row = get_global_id(0);
  const int channel = get_global_id(1);
  if (row >= p.padded_h) return;
  const int from = row - p.pad_h;
  global STORED* out = padded + padded0 * EVN_PER_FLOAT + ((long)channel * p.padded_h + row) * p.stride_w * p.phase_w;
  const int total = p.stride_w * p.phase_w;
  if (from < 0 || from >= p.in_h) {
    for (int i = 0; i < total; ++i) out[i] = 0.0f;
    return;
  }
  global const float* in = x + x0 + ((long)channel * p.in_h + from) * p.in_w;
  for (int phase = 0; phase < p.stride_w; ++phase, out += p.phase_w) {
    const long shift = phase - p.pad_w;  // column j comes from j * stride_w + shift
    int j = 0;
    for (; j < p.phase_w && j * p.stride_w + shift < 0; ++j) out[j] = 0.0f;
    if (p.stride_w == 1) {
      for (; j + EVN_LANES <= p.phase_w && j + shift + EVN_LANES <= p.in_w; j += EVN_LANES) STORES(LOADV(in + j + shift), out + j);
    } else if (p.stride_w == 2) {
      for (; j + EVN_LANES <= p.phase_w && j * 2 + shift + 2 * EVN_LANES <= p.in_w; j += EVN_LANES) {
        const VF low = LOADV(in + j * 2 + shift);
        const VF high = LOADV(in + j * 2 + shift + EVN_LANES);
        STORES((VF)(low.even, high.even), out + j);
      }
    }
    for (; j < p.phase_w && j * p.stride_w + shift < p.in_w; ++j) out[j] = in[j * p.stride_w + shift];
    for (; j < p.phase_w; ++j) out[j] = 0.0f;
  }
}

// Packs weights [group][outputs][depth] that are computed in a run, as the host packs constant ones. Grid: depth, blocks, groups.
EVN_KERNEL void conv_pack(global const float* w, ulong w0, global float* packed, ulong packed0, long outputs, long blocks, long depth) {
  const long k = get_global_id(0);
  if (k >= depth) return;
  const long first = (long)get_global_id(1) * 8;
  const long group = get_global_id(2);
  global const float* from = w + w0 + (group * outputs + first) * depth + k;
  global float* to = packed + packed0 + ((group * blocks * 8 + first) * depth) + k * 8;
  for (int m = 0; m < 8; ++m) to[m] = first + m < outputs ? from[m * depth] : 0.0f;
}

static inline void clear(VF* sums) {
  for (int i = 0; i < 8 * EVN_TILE; ++i) sums[i] = (VF)0.0f;
}

// One tile of a convolution over the padded copy, of N vectors of pixels.
#define EVN_TAPS(N, LOAD_V0, LOAD_V1)                                                      \
  const bool is_long = (long)p.channels * p.kernel_h * p.kernel_w > EVN_CHAIN;             \
  if (is_long) clear(sums);                                                                \
  int left_of_chain = EVN_CHAIN;                                                           \
  for (int c = 0; c < p.channels; ++c) {                                                   \
    for (int ky = 0; ky < p.kernel_h; ++ky) {                                              \
      global const STORED* tap = src + ((long)c * p.padded_h + ky * p.dilation_h) * pitch; \
      int phase = 0;                                                                       \
      for (int kx = 0; kx < p.kernel_w; ++kx) {                                            \
        global const STORED* at = tap + phase * p.phase_w;                                 \
        const VF v0 = LOAD_V0;                                                             \
        LOAD_V1                                                                            \
        EVN_WEIGHTS                                                                        \
        EVN_ROWS(EVN_ADD##N)                                                               \
        w += 8;                                                                            \
        phase += step_phase;                                                               \
        tap += step_column;                                                                \
        if (phase >= p.stride_w) {                                                         \
          phase -= p.stride_w;                                                             \
          ++tap;                                                                           \
        }                                                                                  \
        if (--left_of_chain != 0) continue;                                                \
        left_of_chain = EVN_CHAIN;                                                         \
        if (is_long) {                                                                     \
          EVN_ROWS(EVN_END_CHAIN##N)                                                       \
        }                                                                                  \
      }                                                                                    \
    }                                                                                      \
  }                                                                                        \
  if (is_long) {                                                                           \
    EVN_ROWS(EVN_ADD_SUMS##N)                                                              \
  }

// Grid: blocks of outputs, column tiles, images * output rows; with pixels_first the blocks are the last.
EVN_KERNEL void conv_direct(global const STORED* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                            ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int x_id = get_global_id(0), y_id = get_global_id(1), z_id = get_global_id(2);
  const int block = EVN_CHOOSE(p.pixels_first, z_id, x_id);
  if (block >= p.groups * p.blocks) return;
  const int column = EVN_CHOOSE(p.pixels_first, x_id, y_id) * EVN_COLUMNS;
  const int image_row = EVN_CHOOSE(p.pixels_first, y_id, z_id);
  const int row = image_row % p.out_h;
  const long image = (long)(image_row / p.out_h) * p.groups;
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const int pitch = p.stride_w * p.phase_w;
  const int step_phase = p.dilation_w % p.stride_w;
  const int step_column = p.dilation_w / p.stride_w;
  const long line = (image + group) * p.channels * p.padded_h + (long)row * p.stride_h;
  global const STORED* src = x + x0 * EVN_PER_FLOAT + line * pitch + column;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels * p.kernel_h * p.kernel_w;
  global const float* start = bias + b0 + block * 8;
  const int count = min(8, p.outputs - first);
  const int left = p.out_w - column;
  const long plane = (long)p.out_h * p.out_w;
  global float* out = y + y0 + ((image + group) * p.outputs + first) * plane + (long)row * p.out_w + column;
  const Bounds bounds = bounds_of(&e);
  VF sums[8 * EVN_TILE];
  VF a[8];
#define EVN_START(m) a[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
#if EVN_TILE == 2
  const bool wide = left > EVN_LANES;
  if (wide) {
    VF b[8];
    EVN_COPY
    EVN_TAPS(2, LOADS(at), const VF v1 = LOADS(at + EVN_LANES);)
    if (bounds.all && count == 8 && left >= EVN_COLUMNS) {
      EVN_ROWS(EVN_WRITE2)
      return;
    }
    EVN_ROWS(EVN_KEEP2)
  } else
#endif
  {
    EVN_TAPS(1, LOADS(at), )
    EVN_ROWS(EVN_KEEP1)
  }
  apply_to_block(sums, count * EVN_TILE, &e);
  for (int m = 0; m < count; ++m) {
    for (int u = 0; u < EVN_TILE; ++u) {
      store_lanes(sums[m * EVN_TILE + u], out + m * plane + u * EVN_LANES, 0, left - u * EVN_LANES);
    }
  }
}

#if EVN_TILE == 2
#if EVN_LANES == 16
#ifdef EVN_HALF
#define LOAD_TWO_ROWS(p, q) ((float16)(vload_half8(0, (p)), vload_half8(0, (q))))
#else
#define LOAD_TWO_ROWS(p, q) ((float16)(vload8(0, (p)), vload8(0, (q))))
#endif
#endif

// Output rows that are no longer than a vector: the two vectors of a tile are two rows, or four of up to 8 pixels in 16 lanes. Rows that are
// not there are the last one once more, and are not stored. Grid: blocks of outputs, images * groups of rows; with pixels_first the groups of
// rows come first.
EVN_KERNEL void conv_direct_rows(global const STORED* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                                 ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int x_id = get_global_id(0), y_id = get_global_id(1);
  const int block = EVN_CHOOSE(p.pixels_first, y_id, x_id);
  if (block >= p.groups * p.blocks) return;
  const bool four = EVN_LANES == 16 && p.out_w <= 8;
  const int rows = four ? 4 : 2;
  const int groups_of_rows = (p.out_h + rows - 1) / rows;
  const int image_group = EVN_CHOOSE(p.pixels_first, x_id, y_id);
  const int row = image_group % groups_of_rows * rows;
  const long image = (long)(image_group / groups_of_rows) * p.groups;
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const int pitch = p.stride_w * p.phase_w;
  const int step_phase = p.dilation_w % p.stride_w;
  const int step_column = p.dilation_w / p.stride_w;
  const long line = (image + group) * p.channels * p.padded_h + (long)row * p.stride_h;
  global const STORED* src = x + x0 * EVN_PER_FLOAT + line * pitch;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels * p.kernel_h * p.kernel_w;
  global const float* start = bias + b0 + block * 8;
  const int last = p.out_h - 1 - row;
  const long step = (long)p.stride_h * pitch;
  const long row1 = min(1, last) * step, row2 = min(2, last) * step, row3 = min(3, last) * step;
  VF sums[16];
  VF a[8], b[8];
#define EVN_START(m) a[m] = b[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
#if EVN_LANES == 16
  if (four) {
    EVN_TAPS(2, LOAD_TWO_ROWS(at, at + row1), const VF v1 = LOAD_TWO_ROWS(at + row2, at + row3);)
  } else
#endif
  {
    EVN_TAPS(2, LOADS(at), const VF v1 = LOADS(at + row1);)
  }
  EVN_ROWS(EVN_KEEP2)
  const int count = min(8, p.outputs - first);
  const long plane = (long)p.out_h * p.out_w;
  global float* out = y + y0 + ((image + group) * p.outputs + first) * plane + (long)row * p.out_w;
  apply_to_block(sums, count * 2, &e);
  const int pixels = EVN_LANES * 2 / rows;
  for (int m = 0; m < count; ++m) {
    float lane[2 * EVN_LANES];
    STOREV(sums[m * 2], lane);
    STOREV(sums[m * 2 + 1], lane + EVN_LANES);
    for (int r = 0; r < min(rows, last + 1); ++r) {
      for (int i = 0; i < p.out_w; ++i) out[m * plane + r * p.out_w + i] = lane[r * pixels + i];
    }
  }
}
#endif

// One tap to each input channel, over rows of `width` pixels that lie as they are in the input. A tile that would pass the end of its
// row begins earlier and stores only its new lanes.
#define EVN_CHANNELS(N, LOAD_V1, END_CHAIN)         \
  const bool is_long = p.channels > EVN_CHAIN;      \
  if (is_long) clear(sums);                         \
  for (int c = 0; c < p.channels;) {                \
    const int end = min(p.channels, c + EVN_CHAIN); \
    for (; c < end; ++c) {                          \
      const VF v0 = ROUNDED(LOADV(src));            \
      LOAD_V1                                       \
      EVN_WEIGHTS                                   \
      EVN_ROWS(EVN_ADD##N)                          \
      w += 8;                                       \
      src += plane;                                 \
    }                                               \
    if (is_long) {                                  \
      EVN_ROWS(EVN_END_CHAIN##N)                    \
      END_CHAIN                                     \
    }                                               \
  }                                                 \
  if (is_long) {                                    \
    EVN_ROWS(EVN_ADD_SUMS##N)                       \
  }

// A convolution of kernel 1 and stride 1; in_w is all pixels, at least EVN_LANES. Grid: blocks of outputs, column tiles, images;
// with pixels_first the column tiles come first. One pixel behind a vector, as 7 x 7 have, is summed up beside it, its outputs in lanes.
EVN_KERNEL void conv_1x1(global const float* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                         ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int x_id = get_global_id(0), y_id = get_global_id(1);
  const int block = EVN_CHOOSE(p.pixels_first, y_id, x_id);
  if (block >= p.groups * p.blocks) return;
  const int wanted = EVN_CHOOSE(p.pixels_first, x_id, y_id) * (p.in_w < EVN_COLUMNS ? EVN_LANES : EVN_COLUMNS);
  const int left = p.in_w - wanted;
  const long plane = p.in_w;
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const long image = (long)get_global_id(2) * p.groups;
  const bool has_last = EVN_TILE == 2 && left == EVN_LANES + 1 && p.in_w >= EVN_COLUMNS;
  const bool wide = EVN_TILE == 2 && left > EVN_LANES && p.in_w >= EVN_COLUMNS && !has_last;
  const int width = wide ? EVN_COLUMNS : EVN_LANES;
  const int column = min(wanted, p.in_w - width - has_last);
  global const float* src = x + x0 + (image + group) * p.channels * plane + column;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels;
  global const float* start = bias + b0 + block * 8;
  const int count = min(8, p.outputs - first);
  const int skip = wanted - column;
  global float* out = y + y0 + ((image + group) * p.outputs + first) * plane + column;
  const Bounds bounds = bounds_of(&e);
  const bool whole = bounds.all && count == 8 && skip == 0;
  VF sums[8 * EVN_TILE];
  VF a[8];
#define EVN_START(m) a[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
#if EVN_TILE == 2
  if (wide) {
    VF b[8];
    EVN_COPY
    EVN_CHANNELS(2, const VF v1 = ROUNDED(LOADV(src + EVN_LANES));, )
    if (whole) {
      EVN_ROWS(EVN_WRITE2)
      return;
    }
    EVN_ROWS(EVN_KEEP2)
  } else
#endif
  if (has_last) {
    float8 last = p.has_bias ? vload8(0, start) : (float8)0.0f, all_last = (float8)0.0f;
    EVN_CHANNELS(1, last = fma((float8)ROUNDED1(src[EVN_LANES]), LOAD_WEIGHTS(0, w), last);, all_last += last; last = (float8)0.0f;)
    float lane[8];
    vstore8(is_long ? all_last : last, 0, lane);
    for (int m = 0; m < count; ++m) out[m * plane + EVN_LANES] = apply_epilogue(lane[m], &e);
    if (whole) {
      EVN_ROWS(EVN_WRITE1)
      return;
    }
    EVN_ROWS(EVN_KEEP1)
  } else {
    EVN_CHANNELS(1, , )
    if (whole) {
      EVN_ROWS(EVN_WRITE1)
      return;
    }
    EVN_ROWS(EVN_KEEP1)
  }
  apply_to_block(sums, count * EVN_TILE, &e);
  for (int m = 0; m < count; ++m) {
    for (int u = 0; u < (wide ? EVN_TILE : 1); ++u) {
      store_lanes(sums[m * EVN_TILE + u], out + m * plane + u * EVN_LANES, skip - u * EVN_LANES, EVN_LANES);
    }
  }
}

// The product over less than EVN_LANES pixels: the vector lies along the outputs. Grid: blocks of outputs, pixels, images.
EVN_KERNEL void conv_1x1_narrow(global const float* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                                ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int block = get_global_id(0);
  if (block >= p.groups * p.blocks) return;
  const int pixel = get_global_id(1);
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const long image = (long)get_global_id(2) * p.groups;
  global const float* src = x + x0 + (image + group) * p.channels * p.in_w + pixel;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels;
  float8 sum = p.has_bias ? vload8(0, bias + b0 + block * 8) : (float8)0.0f;
  float8 all = sum;
  for (int c = 0; c < p.channels;) {
    const int end = min(p.channels, c + EVN_CHAIN);
    const bool is_first = c == 0;
    for (; c < end; ++c) sum = fma((float8)ROUNDED1(src[(long)c * p.in_w]), LOAD_WEIGHTS(c, w), sum);
    all = is_first ? sum : all + sum;
    sum = (float8)0.0f;
  }
  float lane[8];
  vstore8(all, 0, lane);
  global float* out = y + y0 + ((image + group) * p.outputs + first) * p.in_w + pixel;
  for (int m = 0; m < min(8, p.outputs - first); ++m) out[(long)m * p.in_w] = apply_epilogue(lane[m], &e);
}
