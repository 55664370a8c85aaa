// Products of bytes: convolutions and products of matrices whose sums are int32. Four steps of the depth, a quad, are the bytes of a uint.
// A work item makes a tile of 8 rows (output channels of a convolution, rows of a matrix) by one or two vectors of columns (pixels,
// columns); `rows` are [blocks of 8][quads][8], `columns` [quads][pitch]. On a CPU the bytes of some quads at a time become floats, whose
// sums are exact below 2^24, and those become int32.

#pragma OPENCL FP_CONTRACT OFF

#if EVN_LANES == 8
#define EVN_TILE 1
#else
#define EVN_TILE 2
#endif
#define EVN_COLUMNS (EVN_TILE * EVN_LANES)
#define EVN_PANEL 32
#define EVN_QUADS 64  // that are summed as floats: 4 * 64 * 255 * 128 < 2^24
#define EVN_ROWS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define VU EVN_CAT(uint, EVN_LANES)
#define TO_VF EVN_CAT(convert_float, EVN_LANES)
#define TO_VI EVN_CAT(convert_int, EVN_LANES)
#define AS_VI EVN_CAT(as_int, EVN_LANES)

enum { kNoByte, kUnsigned, kSigned };
enum { kToInt, kToByte, kToFloat };

// What belongs to a row or column of constants: sum(constant - zero), the constants' zero, a bias (of convolutions to floats, the bits of
// one that is added behind the scale), what the sum is multiplied by.
typedef struct {
  int bias, sum, zero;
  float scale;
} Term;

typedef struct {
  int kind;          // of the result
  int zero_kind;     // the type of the other operand's zero point
  int flip;          // added to it: 128 where that operand's bytes are flipped
  int bias;          // kToFloat: a float is added to each column
  int scaled;        // kToFloat: one more scale
  float low, high, zero;  // of the bytes of the result
} Output;

static inline int zero_point(global const uint* z, ulong z0, const Output* o) {
  if (o->zero_kind == kNoByte) return o->flip;
  const uchar v = ((global const uchar*)(z + z0))[0];
  return (o->zero_kind == kSigned ? (int)as_char(v) : (int)v) + o->flip;
}

// NaN becomes the least number of the type.
static inline VF to_steps(VI sum, float scale, const Output* o) {
  return fmin(fmax(rint(TO_VF(sum) * scale) + o->zero, (VF)o->low), (VF)o->high);
}
static inline VF to_steps_each(VI sum, VF scale, const Output* o) {
  return fmin(fmax(rint(TO_VF(sum) * scale) + o->zero, (VF)o->low), (VF)o->high);
}

static inline void store_bytes(VF v, global uchar* y, int end) {
  const EVN_CAT(uchar, EVN_LANES) bytes = EVN_CAT(convert_uchar, EVN_LANES)(TO_VI(v) & 255);
  if (end >= EVN_LANES) {
    EVN_CAT(vstore, EVN_LANES)(bytes, 0, y);
    return;
  }
  uchar lane[EVN_LANES];
  EVN_CAT(vstore, EVN_LANES)(bytes, 0, lane);
  for (int i = 0; i < end; ++i) y[i] = lane[i];
}

static inline void store_words(VI v, global int* y, int end) {
  if (end >= EVN_LANES) {
    EVN_CAT(vstore, EVN_LANES)(v, 0, y);
    return;
  }
  int lane[EVN_LANES];
  EVN_CAT(vstore, EVN_LANES)(v, 0, lane);
  for (int i = 0; i < end; ++i) y[i] = lane[i];
}

// ---- sums of a tile: columns are unsigned and rows signed (convolutions), or the other way round ----

#define UNSIGNED_COLUMN(v, j) AS_VI((v) >> (8 * j) & 255u)
#define SIGNED_COLUMN(v, j) (AS_VI((v) << (24 - 8 * j)) >> 24)
#define LOADQ(p) EVN_CAT(vload, EVN_LANES)(0, (p))

#if EVN_LOCAL == 1

static inline void widen(global const uint* rows, int count, bool is_signed, float* to) {
  global const uchar* from = (global const uchar*)rows;
  if (is_signed) {
    for (int i = 0; i < count * 4; i += 16) vstore16(convert_float16(as_char16(vload16(0, from + i))), 0, to + i);
  } else {
    for (int i = 0; i < count * 4; i += 16) vstore16(convert_float16(vload16(0, from + i)), 0, to + i);
  }
}

#define EVN_ADD1(m)                           \
  a[m] = fma((VF)w[4 * m], c0, a[m]);         \
  a[m] = fma((VF)w[4 * m + 1], c1, a[m]);     \
  a[m] = fma((VF)w[4 * m + 2], c2, a[m]);     \
  a[m] = fma((VF)w[4 * m + 3], c3, a[m]);
#define EVN_ADD2(m) EVN_ADD1(m)               \
  b[m] = fma((VF)w[4 * m], d0, b[m]);         \
  b[m] = fma((VF)w[4 * m + 1], d1, b[m]);     \
  b[m] = fma((VF)w[4 * m + 2], d2, b[m]);     \
  b[m] = fma((VF)w[4 * m + 3], d3, b[m]);
#define EVN_CLEAR1(m) a[m] = (VF)0.0f;
#define EVN_CLEAR2(m) a[m] = b[m] = (VF)0.0f;
#define EVN_FLUSH1(m) sums[m] += TO_VI(a[m]);
#define EVN_FLUSH2(m)       \
  sums[m] += TO_VI(a[m]);   \
  sums[R + m] += TO_VI(b[m]);
#define EVN_ONE(F) F(0)

#define EVN_DEFINE_CHUNK(NAME, COLUMN, COUNT, EACH)                                                                    \
  static inline void NAME(global const uint* columns, const int* at, const float* w, int quads, bool wide, VI* sums) { \
    enum { R = COUNT };                                                                                                \
    VF a[COUNT];                                                                                                       \
    if (EVN_TILE == 2 && wide) {                                                                                       \
      VF b[COUNT];                                                                                                     \
      EACH(EVN_CLEAR2)                                                                                                 \
      for (int i = 0; i < quads; ++i, w += 4 * COUNT) {                                                                \
        const VU u = LOADQ(columns + at[i]), v = LOADQ(columns + at[i] + EVN_LANES);                                   \
        const VF c0 = TO_VF(COLUMN(u, 0)), c1 = TO_VF(COLUMN(u, 1)), c2 = TO_VF(COLUMN(u, 2)), c3 = TO_VF(COLUMN(u, 3)); \
        const VF d0 = TO_VF(COLUMN(v, 0)), d1 = TO_VF(COLUMN(v, 1)), d2 = TO_VF(COLUMN(v, 2)), d3 = TO_VF(COLUMN(v, 3)); \
        EACH(EVN_ADD2)                                                                                                 \
      }                                                                                                                \
      EACH(EVN_FLUSH2)                                                                                                 \
      return;                                                                                                          \
    }                                                                                                                  \
    EACH(EVN_CLEAR1)                                                                                                   \
    for (int i = 0; i < quads; ++i, w += 4 * COUNT) {                                                                  \
      const VU u = LOADQ(columns + at[i]);                                                                             \
      const VF c0 = TO_VF(COLUMN(u, 0)), c1 = TO_VF(COLUMN(u, 1)), c2 = TO_VF(COLUMN(u, 2)), c3 = TO_VF(COLUMN(u, 3)); \
      EACH(EVN_ADD1)                                                                                                   \
    }                                                                                                                  \
    EACH(EVN_FLUSH1)                                                                                                   \
  }
EVN_DEFINE_CHUNK(chunk_unsigned_8, UNSIGNED_COLUMN, 8, EVN_ROWS)
EVN_DEFINE_CHUNK(chunk_signed_8, SIGNED_COLUMN, 8, EVN_ROWS)
EVN_DEFINE_CHUNK(chunk_signed_1, SIGNED_COLUMN, 1, EVN_ONE)

#define EVN_QUAD_LOOP(CHUNK, COUNT, IS_SIGNED, QUADS, NEXT)               \
  for (int done = 0; done < QUADS; done += EVN_QUADS) {                   \
    float w[4 * COUNT * EVN_QUADS];                                       \
    int at[EVN_QUADS];                                                    \
    const int now = min(EVN_QUADS, QUADS - done);                         \
    widen(rows + (long)done * COUNT, (now * COUNT + 3) / 4 * 4, IS_SIGNED, w);            \
    for (int i = 0; i < now; ++i) {                                       \
      at[i] = position;                                                   \
      NEXT                                                                \
    }                                                                     \
    CHUNK(columns, at, w, now, wide, sums);                               \
  }

#else

static inline int unsigned_byte(uint v, int j) { return (int)(v >> (8 * j) & 255u); }
static inline int signed_byte(uint v, int j) { return (int)(v << (24 - 8 * j)) >> 24; }

#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
#define EVN_LANE_OF(DOT, w, v, l) DOT(w, v.s##l)
#define EVN_DOTS(DOT, w, v) \
  ((int4)(EVN_LANE_OF(DOT, w, v, 0), EVN_LANE_OF(DOT, w, v, 1), EVN_LANE_OF(DOT, w, v, 2), EVN_LANE_OF(DOT, w, v, 3)))
#define EVN_QUAD_unsigned(w, v) EVN_DOTS(dot_4x8packed_su_int, w, v)
#define EVN_QUAD_signed(w, v) EVN_DOTS(dot_4x8packed_us_int, w, v)
#else
#define EVN_QUAD_unsigned(w, v)                                                                     \
  (signed_byte(w, 0) * UNSIGNED_COLUMN(v, 0) + signed_byte(w, 1) * UNSIGNED_COLUMN(v, 1) +          \
   signed_byte(w, 2) * UNSIGNED_COLUMN(v, 2) + signed_byte(w, 3) * UNSIGNED_COLUMN(v, 3))
#define EVN_QUAD_signed(w, v)                                                                       \
  (unsigned_byte(w, 0) * SIGNED_COLUMN(v, 0) + unsigned_byte(w, 1) * SIGNED_COLUMN(v, 1) +          \
   unsigned_byte(w, 2) * SIGNED_COLUMN(v, 2) + unsigned_byte(w, 3) * SIGNED_COLUMN(v, 3))
#endif
#define chunk_unsigned_8(w, v) EVN_QUAD_unsigned(w, v)
#define chunk_signed_8(w, v) EVN_QUAD_signed(w, v)
#define chunk_signed_1(w, v) EVN_QUAD_signed(w, v)
#define EVN_QUAD_LOOP(CHUNK, COUNT, IS_SIGNED, QUADS, NEXT)                           \
  for (int i = 0; i < QUADS; ++i, rows += COUNT) {                                    \
    const VU u = LOADQ(columns + position);                                           \
    for (int m = 0; m < COUNT; ++m) sums[m] += CHUNK(rows[m], u);                     \
    if (EVN_TILE == 2 && wide) {                                                      \
      const VU v = LOADQ(columns + position + EVN_LANES);                             \
      for (int m = 0; m < COUNT; ++m) sums[COUNT + m] += CHUNK(rows[m], v);           \
    }                                                                                 \
    NEXT                                                                              \
  }

#endif

// ---- convolutions ----

typedef struct {
  int channels, quads;   // of a group: channels, and quads of them
  int outputs, groups, blocks;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int padded_h, phase_w; // as in conv.cl
  int row_chunk;
  int flips;             // the input is int8
  int padding;
  long images;           // those before this one
} QuantizedConv;

static inline uint gather_quad(global const uchar* in, long plane, int last, int column) {
  return in[column] | (uint)in[column + min(1, last) * plane] << 8 | (uint)in[column + min(2, last) * plane] << 16 |
         (uint)in[column + min(3, last) * plane] << 24;
}
#define WIDE_BYTES(p) EVN_CAT(convert_uint, EVN_LANES)(EVN_CAT(vload, EVN_LANES)(0, (p)))

// Four channels of the input side by side, with its border of zero points; unsigned. Columns are sorted as by conv_pad (conv.cl). Channels
// beyond the last have any bytes: their weights are zero points. Grid: padded rows, quads of channels of all groups.
EVN_KERNEL void pad_quads(global const uint* x, ulong x0, global const uint* zero, ulong zero0, global uint* padded, ulong padded0,
                          QuantizedConv p, Output o) {
  const int row = get_global_id(0);
  if (row >= p.padded_h) return;
  const int quad = get_global_id(1);
  const int group = quad / p.quads, first = quad % p.quads * 4;
  const int last = min(3, p.channels - 1 - first);
  const int from = row - p.pad_h;
  const uint border = (uint)zero_point(zero, zero0, &o) * 0x01010101u;
  const uint flip = p.flips ? 0x80808080u : 0u;
  const int total = p.stride_w * p.phase_w;
  global uint* out = padded + padded0 + ((long)quad * p.padded_h + row) * total;
  if (from < 0 || from >= p.in_h) {
    for (int i = 0; i < total; ++i) out[i] = border;
    return;
  }
  const long plane = (long)p.in_h * p.in_w;
  const long channel = (p.images * p.groups + group) * p.channels + first;
  global const uchar* in = (global const uchar*)(x + x0) + channel * plane + (long)from * p.in_w;
  for (int phase = 0; phase < p.stride_w; ++phase, out += p.phase_w) {
    const long shift = phase - p.pad_w;
    int j = 0;
    for (; j < p.phase_w && j * p.stride_w + shift < 0; ++j) out[j] = border;
    if (p.stride_w == 1) {
      for (; j + EVN_LANES <= p.phase_w && j + shift + EVN_LANES <= p.in_w; j += EVN_LANES) {
        global const uchar* at = in + j + shift;
        const VU v = WIDE_BYTES(at) | WIDE_BYTES(at + min(1, last) * plane) << 8 | WIDE_BYTES(at + min(2, last) * plane) << 16 |
                     WIDE_BYTES(at + min(3, last) * plane) << 24;
        EVN_CAT(vstore, EVN_LANES)(v ^ flip, 0, out + j);
      }
    }
    for (; j < p.phase_w && j * p.stride_w + shift < p.in_w; ++j) out[j] = gather_quad(in, plane, last, j * p.stride_w + shift) ^ flip;
    for (; j < p.phase_w; ++j) out[j] = border;
  }
}

// To the next tap, in the order of the packed weights: quads of channels, rows and columns of the kernel.
#define EVN_NEXT_TAP                                  \
  {                                                   \
    position += step_column + step_phase * p.phase_w; \
    phase += step_phase;                              \
    if (phase >= p.stride_w) {                        \
      phase -= p.stride_w;                            \
      position += 1 - pitch;                          \
    }                                                 \
    if (++kx == p.kernel_w) {                         \
      kx = phase = 0;                                 \
      line += p.dilation_h * pitch;                   \
      if (++ky == p.kernel_h) {                       \
        ky = 0;                                       \
        line += between;                              \
      }                                               \
      position = line;                                \
    }                                                 \
  }

static inline int sum_bias(Term t, const Output* o) { return o->kind == kToFloat ? 0 : t.bias; }

// Sums of one channel.
static inline void store_channel(VI sum, Term t, global const float* scale, global uint* y, long to, int end, const Output* o) {
  if (o->kind == kToInt) return store_words(sum, (global int*)y + to, end);
  if (o->kind == kToByte) return store_bytes(to_steps(sum, t.scale, o), (global uchar*)y + to, end);
  VF r = TO_VF(sum) * (*scale * t.scale);
  if (o->bias) r = r + as_float(t.bias);
  store_words(AS_VI(r), (global int*)y + to, end);
}

// Grid: blocks of outputs, column tiles, output rows.
EVN_KERNEL void convolve(global const uint* x, ulong x0, global const uint* weights, ulong w0, global const uint* zero, ulong zero0,
                         global const float* scale, ulong scale0, global uint* y, ulong y0, QuantizedConv p, Output o) {
  const int block = get_global_id(0);
  if (block >= p.groups * p.blocks) return;
  const int column = get_global_id(1) * EVN_COLUMNS;
  const int row = get_global_id(2);
  const int group = block / p.blocks, first = block % p.blocks * 8;
  const int pitch = p.stride_w * p.phase_w;
  const int step_phase = p.dilation_w % p.stride_w, step_column = p.dilation_w / p.stride_w;
  const int between = (p.padded_h - p.kernel_h * p.dilation_h) * pitch;
  const int quads = p.quads * p.kernel_h * p.kernel_w;
  const bool wide = p.out_w - column > EVN_LANES;
  global const uint* columns = x + x0 + ((long)group * p.quads * p.padded_h + (long)row * p.stride_h) * pitch + column;
  global const uint* rows = weights + w0 + (long)block * quads * 8;
  global const Term* terms = (global const Term*)(weights + w0 + (long)p.groups * p.blocks * quads * 8) + block * 8;
  VI sums[8 * EVN_TILE];
  for (int m = 0; m < 8 * EVN_TILE; ++m) sums[m] = (VI)0;
  {
    int position = 0, line = 0, kx = 0, ky = 0, phase = 0;
    EVN_QUAD_LOOP(chunk_unsigned_8, 8, true, quads, EVN_NEXT_TAP)
  }
  const int count = min(8, p.outputs - first);
  bool has_zeros = false;
  for (int m = 0; m < count; ++m) has_zeros |= terms[m].zero != 0;
  VI inputs[EVN_TILE];  // sums of the bytes of the input
  for (int u = 0; u < EVN_TILE; ++u) inputs[u] = (VI)0;
  if (has_zeros) {
    int position = 0, line = 0, kx = 0, ky = 0, phase = 0;
    for (int i = 0; i < quads; ++i) {
      for (int u = 0; u < (wide ? EVN_TILE : 1); ++u) {
        const VU v = LOADQ(columns + position + u * EVN_LANES);
        inputs[u] += UNSIGNED_COLUMN(v, 0) + UNSIGNED_COLUMN(v, 1) + UNSIGNED_COLUMN(v, 2) + UNSIGNED_COLUMN(v, 3);
      }
      EVN_NEXT_TAP
    }
  }
  const int zero_x = zero_point(zero, zero0, &o);
  const long plane = (long)p.out_h * p.out_w;
  const long out = ((p.images * p.groups + group) * p.outputs + first) * plane + (long)row * p.out_w + column;
  for (int m = 0; m < count; ++m) {
    const Term t = terms[m];
    for (int u = 0; u < (wide ? EVN_TILE : 1); ++u) {
      const VI v = sums[u * 8 + m] + (sum_bias(t, &o) - zero_x * t.sum) - t.zero * inputs[u];
      const long to = out + m * plane + u * EVN_LANES;
      const int end = p.out_w - column - u * EVN_LANES;
      store_channel(v, t, scale + scale0, y + y0, to, end, &o);
    }
  }
}

// ---- depthwise: the weights are floats, less their zero points, and so few that their sums are exact ----

// Lanes that begin at element `at`, which is column `column` of its row, less the zero point; 0 outside the row.
static inline VF load_lanes(global const uchar* x, long at, int column, int width, int stride, long limit, int shift, int zero) {
  if (stride > 2 || at < 0 || at + stride * EVN_LANES > limit) {
    float lane[EVN_LANES];
    for (int i = 0; i < EVN_LANES; ++i) {
      const long c = column + (long)stride * i;
      lane[i] = c >= 0 && c < width ? (float)(((int)x[at + (long)stride * i] << shift >> shift) - zero) : 0.0f;
    }
    return LOADV(lane);
  }
  const EVN_CAT(uchar, EVN_LANES) low = EVN_CAT(vload, EVN_LANES)(0, x + at);
  VI v = TO_VI(low);
  if (stride == 2) {
    const EVN_CAT(uchar, EVN_LANES) high = EVN_CAT(vload, EVN_LANES)(0, x + at + EVN_LANES);
    v = TO_VI((EVN_CAT(uchar, EVN_LANES))(low.even, high.even));
  }
  const VI columns = column + stride * EVN_IOTA;
  const VI centered = (v << shift >> shift) - zero;
  return TO_VF(columns >= 0 && columns < width ? centered : (VI)0);
}

// Grid: groups of row_chunk output rows, output channels, images.
EVN_KERNEL void convolve_depthwise(global const uint* input, ulong x0, global const float* weights, ulong w0, global const uint* zero,
                                   ulong zero0, global const float* scale, ulong scale0, global uint* y, ulong y0, QuantizedConv p, Output o,
                                   long limit) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const int channel = get_global_id(1);
  const long image = get_global_id(2);
  const int outputs = p.groups * p.outputs, taps = p.kernel_h * p.kernel_w;
  global const uchar* x = (global const uchar*)(input + x0);
  const long plane = (image * p.groups + channel / p.outputs) * p.in_h * p.in_w;
  global const float* w = weights + w0 + (long)channel * taps;
  const Term t = ((global const Term*)(weights + w0 + (long)outputs * taps))[channel];
  const int zero_x = zero_point(zero, zero0, &o), shift = p.flips ? 24 : 0;
  for (int row = begin; row < end; ++row) {
    const int top = row * p.stride_h - p.pad_h;
    const long to = ((image * outputs + channel) * p.out_h + row) * p.out_w;
    for (int ox = 0; ox < p.out_w; ox += EVN_LANES) {
      const int column = ox * p.stride_w - p.pad_w;
      VF sum = (VF)0.0f;
      for (int ky = 0; ky < p.kernel_h; ++ky) {
        const int iy = top + ky * p.dilation_h;
        if (iy < 0 || iy >= p.in_h) continue;
        for (int kx = 0; kx < p.kernel_w; ++kx) {
          const int c = column + kx * p.dilation_w;
          const VF v = load_lanes(x, plane + (long)iy * p.in_w + c, c, p.in_w, p.stride_w, limit, shift, zero_x);
          sum = fma((VF)w[ky * p.kernel_w + kx], v, sum);
        }
      }
      store_channel(TO_VI(sum) + sum_bias(t, &o), t, scale + scale0, y + y0, to + ox, p.out_w - ox, &o);
    }
  }
}

// The largest byte under each window, as MaxPool has it. Grid: groups of row_chunk output rows, planes.
EVN_KERNEL void largest_bytes(global const uint* input, ulong x0, global uint* y, ulong y0, QuantizedConv p, long limit) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const long plane = get_global_id(1);
  global const uchar* x = (global const uchar*)(input + x0);
  const int shift = p.flips ? 24 : 0, least = p.flips ? -128 : 0;
  for (int row = begin; row < end; ++row) {
    const int top = row * p.stride_h - p.pad_h;
    for (int ox = 0; ox < p.out_w; ox += EVN_LANES) {
      VF best = (VF)0.0f;  // above the least
      for (int ky = 0; ky < p.kernel_h; ++ky) {
        const int iy = top + ky * p.dilation_h;
        if (iy < 0 || iy >= p.in_h) continue;
        for (int kx = 0; kx < p.kernel_w; ++kx) {
          const int c = ox * p.stride_w - p.pad_w + kx * p.dilation_w;
          best = fmax(best, load_lanes(x, (plane * p.in_h + iy) * p.in_w + c, c, p.in_w, p.stride_w, limit, shift, least));
        }
      }
      store_bytes(best + (float)least, (global uchar*)(y + y0) + (plane * p.out_h + row) * p.out_w + ox, p.out_w - ox);
    }
  }
}

// The struct of quantized_pool.cc, laid out as there.
typedef struct {
  int include_pad, zero_x;
  int limit_h, limit_w;  // of what is counted: the input, with pads where they are
  float scales[64];      // by the count less 1, or all of one
} Mean;

// The mean of each window, as QLinearAveragePool has it; sums are exact. Grid: groups of row_chunk output rows, planes.
EVN_KERNEL void average_bytes(global const uint* input, ulong x0, global uint* y, ulong y0, QuantizedConv p, Output o, Mean m, long limit) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const long plane = get_global_id(1);
  global const uchar* x = (global const uchar*)(input + x0);
  const int shift = p.flips ? 24 : 0, least = m.include_pad ? -p.pad_w : 0;
  for (int row = begin; row < end; ++row) {
    const int top = row * p.stride_h - p.pad_h;
    for (int ox = 0; ox < p.out_w; ox += EVN_LANES) {
      VF sum = (VF)0.0f;
      VI count = (VI)0;
      for (int ky = 0; ky < p.kernel_h; ++ky) {
        const int iy = top + ky * p.dilation_h;
        const bool inside = iy >= 0 && iy < p.in_h, counts = m.include_pad ? iy < m.limit_h : inside;
        for (int kx = 0; kx < p.kernel_w; ++kx) {
          const int c = ox * p.stride_w - p.pad_w + kx * p.dilation_w;
          const VI columns = c + p.stride_w * EVN_IOTA;
          if (counts) count -= columns >= least && columns < m.limit_w;  // a comparison that holds is -1
          if (inside) sum += load_lanes(x, (plane * p.in_h + iy) * p.in_w + c, c, p.in_w, p.stride_w, limit, shift, m.zero_x);
        }
      }
      int counts[EVN_LANES];
      float scales[EVN_LANES];
      EVN_CAT(vstore, EVN_LANES)(count, 0, counts);
      for (int i = 0; i < EVN_LANES; ++i) scales[i] = m.scales[clamp(counts[i], 1, 64) - 1];
      store_bytes(to_steps_each(TO_VI(sum), LOADV(scales), &o), (global uchar*)(y + y0) + (plane * p.out_h + row) * p.out_w + ox, p.out_w - ox);
    }
  }
}

// ---- products of matrices ----

typedef struct {
  long m, n, k;
  long a_row, a_step;
  int block;      // rows of a block: 8 or 1
  int quads;
  int flip;       // A is int8
  int padding;
} QuantizedProduct;

// Blocks of rows of A as uint8, and behind them the sums of rows. Grid: blocks.
EVN_KERNEL void pack_rows(global const uint* x, ulong x0, global uint* packed, ulong packed0, QuantizedProduct p) {
  const long block = get_global_id(0);
  const long blocks = (p.m + p.block - 1) / p.block;
  if (block >= blocks) return;
  global const uchar* a = (global const uchar*)(x + x0);
  global uint* to = packed + packed0 + block * p.quads * p.block;
  global int* sums = (global int*)(packed + packed0 + blocks * p.quads * p.block) + block * p.block;
  const uint flip = p.flip ? 0x80u : 0u;
  for (int r = 0; r < p.block; ++r) {
    global const uchar* from = a + min(block * p.block + r, p.m - 1) * p.a_row;
    int sum = 0;
    for (int q = 0; q < p.quads; ++q) {
      uint v = 0;
      for (int j = 0; j < 4 && q * 4 + j < p.k; ++j) {
        const uint b = from[(q * 4 + j) * p.a_step] ^ flip;
        sum += (int)b;
        v |= b << (8 * j);
      }
      to[(long)q * p.block + r] = v;
    }
    sums[r] = sum;
  }
}

static inline void finish_columns(VI sum, int row_sum, global const Term* terms, int zero_a, float scale, global const float* bias,
                                  global uint* y, long to, int end, const Output* o) {
  int zeros[EVN_LANES], adds[EVN_LANES];
  float scales[EVN_LANES], biases[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) {  // terms reach to the end of the panel
    zeros[i] = terms[i].zero;
    adds[i] = terms[i].bias - zero_a * terms[i].sum;
    scales[i] = terms[i].scale;
    biases[i] = o->bias && i < end ? bias[i] : 0.0f;
  }
  const VI v = sum + EVN_CAT(vload, EVN_LANES)(0, adds) - row_sum * EVN_CAT(vload, EVN_LANES)(0, zeros);
  if (o->kind == kToInt) return store_words(v, (global int*)y + to, end);
  if (o->kind == kToByte) return store_bytes(to_steps_each(v, LOADV(scales), o), (global uchar*)y + to, end);
  VF r = TO_VF(v) * (o->scaled ? scale * LOADV(scales) : LOADV(scales));
  if (o->bias) r = r + LOADV(biases);
  store_words(AS_VI(r), (global int*)y + to, end);
}

// Grid: blocks of rows, column tiles; the other way round where `first_is_column`.
#define EVN_DEFINE_PRODUCT(NAME, COUNT, CHUNK) \
  EVN_KERNEL void NAME(global const uint* a, ulong a0, global const uint* b, ulong b0, global const uint* zero, ulong zero0, \
                       global const float* scale, ulong scale0, global const float* bias, ulong bias0, global uint* y, ulong y0, \
                       QuantizedProduct p, Output o, int first_is_column) { \
    const long gx = get_global_id(0), gy = get_global_id(1); \
    const long block = first_is_column ? gy : gx, column = (first_is_column ? gx : gy) * EVN_COLUMNS; \
    const long blocks = (p.m + COUNT - 1) / COUNT, panels = (p.n + EVN_PANEL - 1) / EVN_PANEL; \
    if (block >= blocks || column >= p.n) return; \
    global const uint* rows = a + a0 + block * p.quads * COUNT; \
    global const int* row_sums = (global const int*)(a + a0 + blocks * p.quads * COUNT) + block * COUNT; \
    global const uint* columns = b + b0 + column / EVN_PANEL * p.quads * EVN_PANEL + column % EVN_PANEL; \
    global const Term* terms = (global const Term*)(b + b0 + panels * p.quads * EVN_PANEL) + column; \
    const bool wide = true; \
    VI sums[COUNT * EVN_TILE]; \
    for (int m = 0; m < COUNT * EVN_TILE; ++m) sums[m] = (VI)0; \
    int position = 0; \
    EVN_QUAD_LOOP(CHUNK, COUNT, false, p.quads, position += EVN_PANEL;) \
    const int zero_a = zero_point(zero, zero0, &o); \
    const float one_scale = o.scaled ? scale[scale0] : 1.0f; \
    for (int m = 0; m < (int)min(p.m - block * COUNT, (long)COUNT); ++m) { \
      for (int u = 0; u < EVN_TILE; ++u) { \
        const long at = column + u * EVN_LANES; \
        if (at >= p.n) break; \
        finish_columns(sums[u * COUNT + m], row_sums[m], terms + u * EVN_LANES, zero_a, one_scale, bias + bias0 + at, y + y0, \
                       (block * COUNT + m) * p.n + at, (int)min(p.n - at, (long)EVN_LANES), &o); \
      } \
    } \
  }
EVN_DEFINE_PRODUCT(multiply_rows_8, 8, chunk_signed_8)
EVN_DEFINE_PRODUCT(multiply_rows_1, 1, chunk_signed_1)

// ---- right-hand matrices that are computed, row by row ----

typedef struct {
  long m, n, k, a_at, b_at, y_at;
  int zero_a, zero_b, shift_a, shift_b;  // shift: 24 where the bytes are signed
  float scale;
  int padding;
} ComputedProduct;

// Grid: blocks of four rows, column tiles.
EVN_KERNEL void multiply_computed(global const uint* left, ulong a0, global const uint* right, ulong b0, global uint* y, ulong y0,
                                  ComputedProduct p, Output o) {
  const long row = get_global_id(0) * 4, first = get_global_id(1) * EVN_COLUMNS;
  const int rows = (int)min(p.m - row, 4L);
  global const uchar* a = (global const uchar*)(left + a0) + p.a_at + row * p.k;
  for (long column = first; column < min(first + EVN_COLUMNS, p.n); column += EVN_LANES) {
    global const uchar* b = (global const uchar*)(right + b0) + p.b_at + column;
    const bool whole = column + EVN_LANES <= p.n;
    VI sums[4] = {(VI)0, (VI)0, (VI)0, (VI)0};
    for (long k = 0; k < p.k; ++k, b += p.n) {
      VI v;
      if (whole) {
        v = TO_VI(EVN_CAT(vload, EVN_LANES)(0, b));
      } else {
        int lane[EVN_LANES];
        for (int i = 0; i < EVN_LANES; ++i) lane[i] = column + i < p.n ? b[i] : 0;
        v = EVN_CAT(vload, EVN_LANES)(0, lane);
      }
      v = (v << p.shift_b >> p.shift_b) - p.zero_b;
      for (int r = 0; r < rows; ++r) sums[r] += (((int)a[r * p.k + k] << p.shift_a >> p.shift_a) - p.zero_a) * v;
    }
    for (int r = 0; r < rows; ++r) {
      const long to = p.y_at + (row + r) * p.n + column;
      const int end = (int)min(p.n - column, (long)EVN_LANES);
      if (o.kind == kToInt) store_words(sums[r], (global int*)(y + y0) + to, end);
      else if (o.kind == kToByte) store_bytes(to_steps(sums[r], p.scale, &o), (global uchar*)(y + y0) + to, end);
      else store_words(AS_VI(TO_VF(sums[r]) * p.scale), (global int*)(y + y0) + to, end);
    }
  }
}
