// Convolutions and transposed convolutions with a stride of the kernel's size. A work item makes a tile of 8 output channels by one
// or two vectors of pixels, one chain of fused multiply-adds to each; weights are packed [blocks of 8][inputs][taps][8]. With
// EVN_HALF weights and the padded copy are halves in memory, and what is read where it lies is rounded; sums are float32.

#if EVN_LANES == 8
#define EVN_TILE 1  // vectors: 16 registers hold 8 sums and no more
#else
#define EVN_TILE 2
#endif
#define EVN_COLUMNS (EVN_TILE * EVN_LANES)

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
} Conv;

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

static inline void store_lanes(VF v, global float* y, int begin, int end) {
  if (begin <= 0 && end >= EVN_LANES) {
    STOREV(v, y);
    return;
  }
  float lane[EVN_LANES];
  STOREV(v, lane);
  for (int i = max(begin, 0); i < min(end, EVN_LANES); ++i) y[i] = lane[i];
}

// The input with its zero border, so that no tap needs a look at the edges; a row's columns are sorted by their remainder modulo
// stride_w, so that taps read vectors. Grid: padded rows, channels.
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
    const int shift = phase - p.pad_w;  // column j comes from j * stride_w + shift
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

// One tile of a convolution over the padded copy; V is EVN_ADD1 or EVN_ADD2.
#define EVN_TAPS(V, LOAD_V1)                                                              \
  for (int c = 0; c < p.channels; ++c) {                                                  \
    for (int ky = 0; ky < p.kernel_h; ++ky) {                                             \
      global const STORED* tap = src + ((long)c * p.padded_h + ky * p.dilation_h) * pitch; \
      int phase = 0;                                                                      \
      for (int kx = 0; kx < p.kernel_w; ++kx) {                                           \
        global const STORED* at = tap + phase * p.phase_w;                                \
        const VF v0 = LOADS(at);                                                          \
        LOAD_V1                                                                           \
        EVN_WEIGHTS                                                                       \
        EVN_ROWS(V)                                                                       \
        w += 8;                                                                           \
        phase += step_phase;                                                              \
        tap += step_column;                                                               \
        if (phase >= p.stride_w) {                                                        \
          phase -= p.stride_w;                                                            \
          ++tap;                                                                          \
        }                                                                                 \
      }                                                                                   \
    }                                                                                     \
  }

// Grid: blocks of outputs, column tiles, output rows.
EVN_KERNEL void conv_direct(global const STORED* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                            ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int block = get_global_id(0);
  if (block >= p.groups * p.blocks) return;
  const int column = get_global_id(1) * EVN_COLUMNS;
  const int row = get_global_id(2);
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const int pitch = p.stride_w * p.phase_w;
  const int step_phase = p.dilation_w % p.stride_w;
  const int step_column = p.dilation_w / p.stride_w;
  const long line = (long)group * p.channels * p.padded_h + (long)row * p.stride_h;
  global const STORED* src = x + x0 * EVN_PER_FLOAT + line * pitch + column;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels * p.kernel_h * p.kernel_w;
  global const float* start = bias + b0 + block * 8;
  VF sums[8 * EVN_TILE];
  VF a[8];
#define EVN_START(m) a[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
#if EVN_TILE == 2
  const bool wide = p.out_w - column > EVN_LANES;
  if (wide) {
    VF b[8];
    EVN_COPY
    EVN_TAPS(EVN_ADD2, const VF v1 = LOADS(at + EVN_LANES);)
    EVN_ROWS(EVN_KEEP2)
  } else
#endif
  {
    EVN_TAPS(EVN_ADD1, )
    EVN_ROWS(EVN_KEEP1)
  }
  const int count = min(8, p.outputs - first);
  const int left = p.out_w - column;
  const long plane = (long)p.out_h * p.out_w;
  global float* out = y + y0 + ((long)group * p.outputs + first) * plane + (long)row * p.out_w + column;
  apply_to_block(sums, count * EVN_TILE, &e);
  for (int m = 0; m < count; ++m) {
    for (int u = 0; u < EVN_TILE; ++u) {
      store_lanes(sums[m * EVN_TILE + u], out + m * plane + u * EVN_LANES, 0, left - u * EVN_LANES);
    }
  }
}

// One tap to each input channel, over rows of `width` pixels that lie as they are in the input. A tile that would pass the end of its
// row begins earlier and stores only its new lanes.
#define EVN_CHANNELS(V, LOAD_V1)            \
  for (int c = 0; c < p.channels; ++c) {    \
    const VF v0 = ROUNDED(LOADV(src));      \
    LOAD_V1                                 \
    EVN_WEIGHTS                             \
    EVN_ROWS(V)                             \
    w += 8;                                 \
    src += plane;                           \
  }

// A convolution of kernel 1 and stride 1; in_w is all pixels, at least EVN_LANES. Grid: blocks of outputs, column tiles, images.
EVN_KERNEL void conv_1x1(global const float* x, ulong x0, global const STORED* weights, ulong w0, global const float* bias,
                         ulong b0, global float* y, ulong y0, Conv p, Epilogue e) {
  const int block = get_global_id(0);
  if (block >= p.groups * p.blocks) return;
  const int wanted = get_global_id(1) * (p.in_w < EVN_COLUMNS ? EVN_LANES : EVN_COLUMNS);
  const int left = p.in_w - wanted;
  const long plane = p.in_w;
  const int group = block / p.blocks;
  const int first = block % p.blocks * 8;
  const long image = (long)get_global_id(2) * p.groups;
  const bool wide = EVN_TILE == 2 && left > EVN_LANES && p.in_w >= EVN_COLUMNS;
  const int width = wide ? EVN_COLUMNS : EVN_LANES;
  const int column = min(wanted, p.in_w - width);
  global const float* src = x + x0 + (image + group) * p.channels * plane + column;
  global const STORED* w = weights + w0 * EVN_PER_FLOAT + (long)block * 8 * p.channels;
  global const float* start = bias + b0 + block * 8;
  VF sums[8 * EVN_TILE];
  VF a[8];
#define EVN_START(m) a[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
#if EVN_TILE == 2
  if (wide) {
    VF b[8];
    EVN_COPY
    EVN_CHANNELS(EVN_ADD2, const VF v1 = ROUNDED(LOADV(src + EVN_LANES));)
    EVN_ROWS(EVN_KEEP2)
  } else
#endif
  {
    EVN_CHANNELS(EVN_ADD1, )
    EVN_ROWS(EVN_KEEP1)
  }
  const int count = min(8, p.outputs - first);
  const int skip = wanted - column;
  global float* out = y + y0 + ((image + group) * p.outputs + first) * plane + column;
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
  for (int c = 0; c < p.channels; ++c) sum = fma((float8)ROUNDED1(src[(long)c * p.in_w]), LOAD_WEIGHTS(c, w), sum);
  float lane[8];
  vstore8(sum, 0, lane);
  global float* out = y + y0 + ((image + group) * p.outputs + first) * p.in_w + pixel;
  for (int m = 0; m < min(8, p.outputs - first); ++m) out[(long)m * p.in_w] = apply_epilogue(lane[m], &e);
}

// ---- depthwise: one input channel to each group; weights as the model has them. `limit`: elements of the input ----

static inline VF load_stride(global const float* x, const int stride) {
  const VF low = LOADV(x);
  if (stride == 1) return low;
  const VF high = LOADV(x + EVN_LANES);
  return (VF)(low.even, high.even);
}

// Lanes that begin at element `at`, which is column `column` of its row; what lies outside the row is 0.
static inline VF load_edge(global const float* x, long at, int column, int width, const int stride, long limit) {
  const VI columns = column + stride * EVN_IOTA;
  if (at >= 0 && at + stride * EVN_LANES <= limit && stride <= 2) {
    return (columns >= 0 && columns < width) ? load_stride(x + at, stride) : (VF)0.0f;
  }
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) {
    const int c = column + stride * i;
    lane[i] = c >= 0 && c < width ? x[at + (long)stride * i] : 0.0f;
  }
  return LOADV(lane);
}

// The sum over the taps of one vector of an output row, whose first pixel reads from column `column` on.
static inline VF depthwise_taps(global const float* x, long in_row, int top, int column, global const float* w, float bias,
                                const Conv* p, const int stride, long limit) {
  const int reach = (p->kernel_w - 1) * p->dilation_w;
  const long last = in_row + (long)(top + (p->kernel_h - 1) * p->dilation_h) * p->in_w + column + reach;
  const bool inside = stride <= 2 && column >= 0 && column + (EVN_LANES - 1) * stride + reach < p->in_w &&
                      last + stride * EVN_LANES <= limit;
  VF sum = (VF)bias;
  for (int ky = 0; ky < p->kernel_h; ++ky) {
    const int iy = top + ky * p->dilation_h;
    if (iy < 0 || iy >= p->in_h) continue;
    const long at = in_row + (long)iy * p->in_w + column;
    global const float* taps = w + ky * p->kernel_w;
    if (inside) {
      for (int kx = 0; kx < p->kernel_w; ++kx) sum = fma((VF)taps[kx], load_stride(x + at + kx * p->dilation_w, stride), sum);
    } else {
      for (int kx = 0; kx < p->kernel_w; ++kx) {
        const int shift = kx * p->dilation_w;
        sum = fma((VF)taps[kx], load_edge(x, at + shift, column + shift, p->in_w, stride, limit), sum);
      }
    }
  }
  return sum;
}

// That sum for 3 x 3 taps side by side: which lanes are outside the row is the same in each of its rows. What is read lies in the input.
static inline VF depthwise_3x3(global const float* x, long in_row, int top, int column, global const float* w, float bias, const Conv* p,
                               const int stride) {
  const int width = p->in_w;
  const bool inside = column >= 0 && column + (EVN_LANES - 1) * stride + 2 < width;
  const VI c0 = column + stride * EVN_IOTA, c1 = c0 + 1, c2 = c0 + 2;
  const VI has0 = c0 >= 0 && c0 < width, has1 = c1 >= 0 && c1 < width, has2 = c2 >= 0 && c2 < width;
  VF sum = (VF)bias;
  for (int ky = 0; ky < 3; ++ky, w += 3) {
    const int iy = top + ky;
    if (iy < 0 || iy >= p->in_h) continue;
    global const float* from = x + (in_row + (long)iy * width + column);
    const VF v0 = load_stride(from, stride), v1 = load_stride(from + 1, stride), v2 = load_stride(from + 2, stride);
    if (inside) {
      sum = fma((VF)w[0], v0, sum);
      sum = fma((VF)w[1], v1, sum);
      sum = fma((VF)w[2], v2, sum);
    } else {
      sum = fma((VF)w[0], has0 ? v0 : (VF)0.0f, sum);
      sum = fma((VF)w[1], has1 ? v1 : (VF)0.0f, sum);
      sum = fma((VF)w[2], has2 ? v2 : (VF)0.0f, sum);
    }
  }
  return sum;
}

// `room`: elements from the row's beginning to the end of what this work item writes. Lanes behind the row are in the next one, which is
// written later.
static inline void depthwise_row(global const float* x, long in_row, int row, global const float* w, float bias, global float* y,
                                 int room, const Conv* p, const int stride, long limit, const Epilogue* e) {
  const int top = row * p->stride_h - p->pad_h;
  const bool is_3x3 = stride <= 2 && p->kernel_h == 3 && p->kernel_w == 3 && p->dilation_h == 1 && p->dilation_w == 1;
  const long first = in_row + (long)max(top, 0) * p->in_w;
  const long last = in_row + (long)min(top + 2, p->in_h - 1) * p->in_w + 2 + stride * EVN_LANES;
  for (int ox = 0; ox < p->out_w; ox += EVN_LANES) {
    const int column = ox * stride - p->pad_w;
    VF sum;
    if (is_3x3 && first + column >= 0 && last + column <= limit) sum = depthwise_3x3(x, in_row, top, column, w, bias, p, stride);
    else sum = depthwise_taps(x, in_row, top, column, w, bias, p, stride, limit);
    sum = apply_epilogue(sum, e);
    if (ox + EVN_LANES <= room) STOREV(sum, y + ox);
    else store_lanes(sum, y + ox, 0, p->out_w - ox);
  }
}

// Grid: groups of row_chunk output rows, output channels, images.
EVN_KERNEL void conv_depthwise(global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias,
                               ulong b0, global float* y, ulong y0, Conv p, long limit, Epilogue e) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const int channel = get_global_id(1);
  const long image = get_global_id(2);
  const long in_row = (image * p.groups + channel / p.outputs) * p.in_h * p.in_w;
  global const float* w = weights + w0 + (long)channel * p.kernel_h * p.kernel_w;
  const float start = p.has_bias ? bias[b0 + channel] : 0.0f;
  global float* out = y + y0 + (image * p.groups * p.outputs + channel) * p.out_h * p.out_w;
  for (int row = begin; row < end; ++row) {
    global float* to = out + (long)row * p.out_w;
    const int room = (end - row) * p.out_w;
    if (p.stride_w == 1) {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, 1, limit, &e);
    } else if (p.stride_w == 2) {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, 2, limit, &e);
    } else {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, p.stride_w, limit, &e);
    }
  }
}
