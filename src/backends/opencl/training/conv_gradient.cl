// The derivatives of convolutions. That of the input is a convolution of dy, stretched by zeros to a stride of 1, with the weights turned
// round, by the kernels of conv.cl and tiled.cl. That of the weights is made of copies of x and dy whose rows have the same pitch, with
// zeros of dy in the gaps: a tap is then one product of two long runs, at a distance of its own.

// As in conv.cl. Here it is the convolution that makes dx: channels are those of dy, outputs those of x.
typedef struct {
  int channels, outputs, groups, blocks;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int padded_h, phase_w, row_chunk;
  int has_bias, pixels_first;
} Conv;

// Copies of dy's planes with its elements stretch_h and stretch_w apart, zeros between and around them. Grid: rows, images * channels.
EVN_KERNEL void stretch(global const float* dy, ulong dy0, global float* padded, ulong padded0, int stretch_h, int stretch_w, Conv p) {
  const int row = get_global_id(0);
  if (row >= p.padded_h) return;
  const long channel = get_global_id(1);
  global float* out = padded + padded0 + (channel * p.padded_h + row) * p.phase_w;
  const int y_at = row - p.pad_h;
  if (y_at < 0 || y_at % stretch_h != 0 || y_at / stretch_h >= p.in_h) {
    for (int i = 0; i < p.phase_w; ++i) out[i] = 0.0f;
    return;
  }
  global const float* in = dy + dy0 + (channel * p.in_h + y_at / stretch_h) * p.in_w;
  if (stretch_w == 1) {
    int i = 0;
    for (; i < p.phase_w && i < p.pad_w; ++i) out[i] = 0.0f;
    for (; i + EVN_LANES <= p.phase_w && i - p.pad_w + EVN_LANES <= p.in_w; i += EVN_LANES) STOREV(LOADV(in + i - p.pad_w), out + i);
    for (; i < p.phase_w && i - p.pad_w < p.in_w; ++i) out[i] = in[i - p.pad_w];
    for (; i < p.phase_w; ++i) out[i] = 0.0f;
    return;
  }
  for (int i = 0; i < p.phase_w; ++i) out[i] = 0.0f;
  for (int i = 0; i < p.in_w; ++i) {
    const int at = i * stretch_w + p.pad_w;
    if (at >= 0 && at < p.phase_w) out[at] = in[i];
  }
}

// Weights [group][channels][outputs][taps] as conv.cl has them: [group][block of 8 outputs][channels][taps, the last first][8]. Grid:
// channels * taps, blocks, groups.
EVN_KERNEL void pack_turned(global const float* w, ulong w0, global float* packed, ulong packed0, Conv p) {
  const int taps = p.kernel_h * p.kernel_w;
  const long depth = (long)p.channels * taps, k = get_global_id(0);
  if (k >= depth) return;
  const long block = get_global_id(1), group = get_global_id(2);
  const long channel = group * p.channels + k / taps, tap = taps - 1 - k % taps;
  global float* to = packed + packed0 + ((group * p.blocks + block) * depth + k) * 8;
  for (long m = block * 8; m < block * 8 + 8; ++m) *to++ = m < p.outputs ? w[w0 + (channel * p.outputs + m) * taps + tap] : 0.0f;
}

// With one output to a group: each has `channels` planes of its own. Grid: rows, outputs, images.
EVN_KERNEL void depthwise_input_gradient(global const float* padded, ulong padded0, global const float* w, ulong w0, global float* dx,
                                         ulong dx0, Conv p) {
  const int row = get_global_id(0);
  if (row >= p.out_h) return;
  const long output = get_global_id(1), image = get_global_id(2);
  const int taps = p.kernel_h * p.kernel_w;
  global float* to = dx + dx0 + ((image * p.groups + output) * p.out_h + row) * p.out_w;
  for (int i = 0; i < p.out_w; i += EVN_LANES) {
    VF sum = (VF)0.0f;
    for (int c = 0; c < p.channels; ++c) {
      const long channel = output * p.channels + c;
      global const float* weight = w + w0 + channel * taps + taps - 1;
      global const float* from = padded + padded0 + ((image * p.groups * p.channels + channel) * p.padded_h + row) * p.phase_w + i;
      for (int ky = 0; ky < p.kernel_h; ++ky) {
        for (int kx = 0; kx < p.kernel_w; ++kx, --weight) {
          sum = fma((VF)*weight, LOADV(from + (long)ky * p.dilation_h * p.phase_w + kx * p.dilation_w), sum);
        }
      }
    }
    store_lanes(sum, to + i, 0, min(p.out_w - i, EVN_LANES));
  }
}

// ---- the weights ----

typedef struct {
  int channels, outputs, groups;  // of a group
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int phases_h, phases_w;  // remainders of taps modulo the stride: a copy of x to each
  int pitch;               // of a row of either copy
  int images;              // of both copies
  int parts;               // of the images, each with sums of its own
  int adds;                // the sums are added to
  int padding;
  long x_plane, dy_plane;  // elements; that of dy is a multiple of 16
} Weights;

// [channel][phase][image][x_plane]. Grid: a group for each image, channels * phases.
EVN_KERNEL void copy_input(global const float* x, ulong x0, global float* copy, ulong copy0, Weights p) {
  const long image = get_group_id(0), plane = get_global_id(1);
  const int phases = p.phases_h * p.phases_w;
  const long channel = plane / phases;
  const int shift_h = (int)(plane % phases) / p.phases_w - p.pad_h, shift_w = (int)(plane % phases) % p.phases_w - p.pad_w;
  global const float* from = x + x0 + (image * p.channels * p.groups + channel) * p.in_h * p.in_w;
  global float* to = copy + copy0 + (plane * p.images + image) * p.x_plane;
  const int rows = (int)((p.x_plane + p.pitch - 1) / p.pitch);
  for (int row = get_local_id(0); row < rows; row += EVN_LOCAL) {
    const long y_at = (long)row * p.stride_h + shift_h;
    global float* out = to + (long)row * p.pitch;
    const int width = (int)min((long)p.pitch, p.x_plane - (long)row * p.pitch);
    int i = 0;
    if (y_at >= 0 && y_at < p.in_h) {
      global const float* in = from + y_at * p.in_w;
      for (; i < width && (long)i * p.stride_w + shift_w < 0; ++i) out[i] = 0.0f;
      if (p.stride_w == 1) {
        for (; i + EVN_LANES <= width && i + shift_w + EVN_LANES <= p.in_w; i += EVN_LANES) STOREV(LOADV(in + i + shift_w), out + i);
      }
      for (; i < width && (long)i * p.stride_w + shift_w < p.in_w; ++i) out[i] = in[(long)i * p.stride_w + shift_w];
    }
    for (; i < width; ++i) out[i] = 0.0f;
  }
}

// [output][image][dy_plane]. Grid: a group for each image, outputs.
EVN_KERNEL void copy_gradient(global const float* dy, ulong dy0, global float* copy, ulong copy0, Weights p) {
  const long image = get_group_id(0), output = get_global_id(1);
  global const float* from = dy + dy0 + (image * p.outputs * p.groups + output) * p.out_h * p.out_w;
  global float* to = copy + copy0 + (output * p.images + image) * p.dy_plane;
  for (int row = get_local_id(0); row < p.out_h; row += EVN_LOCAL) {
    global const float* in = from + (long)row * p.out_w;
    global float* out = to + (long)row * p.pitch;
    int i = 0;
    for (; i + EVN_LANES <= p.out_w; i += EVN_LANES) STOREV(LOADV(in + i), out + i);
    for (; i < p.out_w; ++i) out[i] = in[i];
    for (; i < p.pitch; ++i) out[i] = 0.0f;
  }
  for (long i = (long)p.out_h * p.pitch + get_local_id(0); i < p.dy_plane; i += EVN_LOCAL) to[i] = 0.0f;
}

// Where the run of column `column` of a group's weights begins: an input channel and a tap.
static inline long run_begin(long column, int group, const Weights* p) {
  const int taps = p->kernel_h * p->kernel_w;
  const long channel = group * p->channels + column / taps;
  const int tap = (int)(column % taps);
  const int h = tap / p->kernel_w * p->dilation_h, w = tap % p->kernel_w * p->dilation_w;
  const long plane = (channel * p->phases_h + h % p->stride_h) * p->phases_w + w % p->stride_w;
  return plane * p->images * p->x_plane + (long)(h / p->stride_h) * p->pitch + w / p->stride_w;
}

static inline float lanes_sum(VF v) {
  float lane[EVN_LANES];
  STOREV(v, lane);
  float sum = lane[0];
  for (int i = 1; i < EVN_LANES; ++i) sum += lane[i];
  return sum;
}

#define EVN_REPEAT3(F, r) F(r, 0) F(r, 1) F(r, 2)
#define EVN_REPEAT9(F, r) EVN_REPEAT3(F, r) F(r, 3) F(r, 4) F(r, 5) F(r, 6) F(r, 7) F(r, 8)
#define EVN_REPEAT8(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define EVN_REPEAT4(F) F(0) F(1) F(2) F(3)
#define EVN_REPEAT1(F) F(0)
#define EVN_ZERO(r, t) VF s##r##_##t = (VF)0.0f;
#define EVN_BEGIN_COLUMN(r, t) const long x##t = run_begin(min(column + t, depth - 1), group, &p);
#define EVN_LOAD_COLUMN(r, t) const VF v##t = LOADV(copy + x##t + x_at + i);
#define EVN_ADD_PRODUCT(r, t) s##r##_##t = fma(g, v##t, s##r##_##t);
#define EVN_KEEP_SUM(r, t)             \
  sums[r * columns + t] += s##r##_##t; \
  s##r##_##t = (VF)0.0f;
#define EVN_CHAIN 512  // products of a lane that are added up by themselves, as long chains round more

// `ROWS` output channels by columns; those beyond the last are the last, and are not kept. Lanes, and the items of a group on a GPU, have
// sums of their own, which are added up in their order. Grid: a group for each run of columns, blocks of rows of all groups, parts of the
// images.
#define EVN_WEIGHT_GRADIENT(NAME, ROWS, COLUMNS, EACH_ROW, EACH_COLUMN) \
  EVN_KERNEL void NAME(global const float* x_copy, ulong x_copy0, global const float* dy_copy, ulong dy_copy0, global float* dw, \
                       ulong dw0, Weights p) {                                                                                  \
    const int columns = COLUMNS;                                                                                                \
    const long depth = (long)p.channels * p.kernel_h * p.kernel_w;                                                              \
    const long column = (long)get_group_id(0) * COLUMNS;                                                                        \
    const int blocks = (p.outputs + ROWS - 1) / ROWS;                                                                           \
    const int group = (int)get_global_id(1) / blocks, row = (int)get_global_id(1) % blocks * ROWS;                              \
    const long part = get_global_id(2);                                                                                         \
    const long first = part * p.images / p.parts, last = (part + 1) * p.images / p.parts;                                       \
    global const float* copy = x_copy + x_copy0;                                                                                \
    global const float* gradient = dy_copy + dy_copy0 + (long)group * p.outputs * p.images * p.dy_plane;                        \
    EACH_COLUMN(EVN_BEGIN_COLUMN, 0)                                                                                            \
    EACH_ROW(EVN_BEGIN_ROW)                                                                                                     \
    EACH_ROW(EACH_COLUMN##_ZERO)                                                                                                \
    VF sums[ROWS * COLUMNS];                                                                                                    \
    for (int i = 0; i < ROWS * COLUMNS; ++i) sums[i] = (VF)0.0f;                                                                \
    long left = EVN_CHAIN;                                                                                                      \
    for (long n = first; n < last; ++n) {                                                                                       \
      const long x_at = n * p.x_plane, dy_at = n * p.dy_plane;                                                                  \
      for (long i = (long)get_local_id(0) * EVN_LANES; i < p.dy_plane;) {                                                       \
        const long end = min(p.dy_plane, i + left * EVN_LOCAL * EVN_LANES);                                                     \
        left -= (end - i + EVN_LOCAL * EVN_LANES - 1) / (EVN_LOCAL * EVN_LANES);                                                \
        for (; i < end; i += EVN_LOCAL * EVN_LANES) {                                                                           \
          EACH_COLUMN(EVN_LOAD_COLUMN, 0)                                                                                       \
          EACH_ROW(EACH_COLUMN##_ADD)                                                                                           \
        }                                                                                                                       \
        if (left > 0) continue;                                                                                                 \
        left = EVN_CHAIN;                                                                                                       \
        EACH_ROW(EACH_COLUMN##_KEEP)                                                                                            \
      }                                                                                                                         \
    }                                                                                                                           \
    EACH_ROW(EACH_COLUMN##_KEEP)                                                                                                \
    global float* to = dw + dw0 + part * p.groups * p.outputs * depth + ((long)group * p.outputs + row) * depth + column;       \
    EVN_WRITE_SUMS(ROWS, COLUMNS)                                                                                               \
  }
#define EVN_BEGIN_ROW(r) const long y##r = min(row + r, p.outputs - 1) * (long)p.images * p.dy_plane;
#define EVN_REPEAT3_ZERO(r) EVN_REPEAT3(EVN_ZERO, r)
#define EVN_REPEAT9_ZERO(r) EVN_REPEAT9(EVN_ZERO, r)
#define EVN_REPEAT3_KEEP(r) EVN_REPEAT3(EVN_KEEP_SUM, r)
#define EVN_REPEAT9_KEEP(r) EVN_REPEAT9(EVN_KEEP_SUM, r)
#define EVN_REPEAT3_ADD(r)                          \
  {                                                 \
    const VF g = LOADV(gradient + y##r + dy_at + i); \
    EVN_REPEAT3(EVN_ADD_PRODUCT, r)                 \
  }
#define EVN_REPEAT9_ADD(r)                          \
  {                                                 \
    const VF g = LOADV(gradient + y##r + dy_at + i); \
    EVN_REPEAT9(EVN_ADD_PRODUCT, r)                 \
  }

#if EVN_LOCAL > 1
#define EVN_WRITE_SUMS(ROWS, COLUMNS)                                                     \
  local float parts[ROWS * COLUMNS * EVN_LOCAL];                                          \
  const int item = get_local_id(0);                                                       \
  for (int i = 0; i < ROWS * COLUMNS; ++i) parts[i * EVN_LOCAL + item] = lanes_sum(sums[i]); \
  barrier(CLK_LOCAL_MEM_FENCE);                                                           \
  if (item < ROWS * COLUMNS && row + item / COLUMNS < p.outputs && column + item % COLUMNS < depth) { \
    float sum = 0.0f;                                                                     \
    for (int k = 0; k < EVN_LOCAL; ++k) sum += parts[item * EVN_LOCAL + k];               \
    global float* at = to + item / COLUMNS * depth + item % COLUMNS;                      \
    *at = p.adds ? *at + sum : sum;                                                       \
  }
#else
#define EVN_WRITE_SUMS(ROWS, COLUMNS)                                       \
  for (int r = 0; r < min(ROWS, p.outputs - row); ++r) {                    \
    for (int t = 0; t < min((long)COLUMNS, depth - column); ++t) {          \
      const float sum = lanes_sum(sums[r * COLUMNS + t]);                   \
      global float* at = to + r * depth + t;                                \
      *at = p.adds ? *at + sum : sum;                                       \
    }                                                                       \
  }
#endif

#if EVN_LANES == 16
#define EVN_ROWS 8
#define EVN_EACH_ROW EVN_REPEAT8
#else
#define EVN_ROWS 4
#define EVN_EACH_ROW EVN_REPEAT4
#endif
EVN_WEIGHT_GRADIENT(weight_gradient, EVN_ROWS, 3, EVN_EACH_ROW, EVN_REPEAT3)
EVN_WEIGHT_GRADIENT(weight_gradient_of_few, 1, 9, EVN_REPEAT1, EVN_REPEAT9)

// The sums of parts, in their order. Grid: pieces.
EVN_KERNEL void sum_parts(global const float* from, ulong from0, global float* dw, ulong dw0, long n, long parts, long chunk) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) {
    float sum = 0.0f;
    for (long k = 0; k < parts; ++k) sum += from[from0 + k * n + i];
    dw[dw0 + i] = sum;
  }
}
