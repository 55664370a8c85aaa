// Bytes and what they stand for: QuantizeLinear and its like, sums and products of bytes, means of planes, tables.

#pragma OPENCL FP_CONTRACT OFF

#define TO_VF EVN_CAT(convert_float, EVN_LANES)
#define TO_VI EVN_CAT(convert_int, EVN_LANES)
#define VB EVN_CAT(uchar, EVN_LANES)

enum { kNoByte, kUnsigned, kSigned };

static inline VI load_bytes(global const uchar* p, bool is_signed) {
  const VI v = TO_VI(EVN_CAT(vload, EVN_LANES)(0, p));
  const int shift = is_signed ? 24 : 0;
  return v << shift >> shift;
}
static inline int load_byte(global const uchar* p, bool is_signed) { return is_signed ? (int)as_char(p[0]) : (int)p[0]; }
static inline float byte_or(global const float* z, ulong z0, long at, int kind) {
  return kind == kNoByte ? 0.0f : (float)load_byte((global const uchar*)(z + z0) + at, kind == kSigned);
}

// To bytes; NaN becomes the least one.
#define EVN_DEFINE_SATURATED(T)                                                     \
  __attribute__((overloadable)) static inline T saturated(T x, float low, float high) { \
    return x != x ? (T)low : fmin(fmax(rint(x), (T)low), (T)high);                 \
  }
EVN_DEFINE_SATURATED(float)
EVN_DEFINE_SATURATED(VF)

static inline void store_vector(VF v, global uchar* y) {
  EVN_CAT(vstore, EVN_LANES)(EVN_CAT(convert_uchar, EVN_LANES)(TO_VI(v) & 255), 0, y);
}

// ---- QuantizeLinear and DequantizeLinear: number (i / inner % length) of scales and zero points belongs to element i ----

// Grid: pieces.
EVN_KERNEL void quantize(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* zero, ulong zero0,
                         global float* y, ulong y0, long count, long chunk, long inner, long length, int kind, int zero_kind) {
  const long end = min((long)(get_global_id(0) + 1) * chunk, count);
  const float low = kind == kSigned ? -128.0f : 0.0f, high = kind == kSigned ? 127.0f : 255.0f;
  global uchar* out = (global uchar*)(y + y0);
  for (long i = (long)get_global_id(0) * chunk; i < end;) {
    const long at = i / inner % length;
    const long stop = min(end, (i / inner + 1) * inner);
    const float s = scale[scale0 + at], z = byte_or(zero, zero0, at, zero_kind);
    for (; i + EVN_LANES <= stop; i += EVN_LANES) {
      store_vector(saturated(rint(quotient(LOADV(x + x0 + i), (VF)s)) + z, low, high), out + i);
    }
    for (; i < stop; ++i) out[i] = (uchar)((int)saturated(rint(quotient(x[x0 + i], s)) + z, low, high) & 255);
  }
}

enum { kOfUchar, kOfChar, kOfUshort, kOfShort, kOfInt };
static inline long load_number(global const float* x, long i, int type) {
  switch (type) {
    case kOfUchar: return ((global const uchar*)x)[i];
    case kOfChar: return ((global const char*)x)[i];
    case kOfUshort: return ((global const ushort*)x)[i];
    case kOfShort: return ((global const short*)x)[i];
    default: return ((global const int*)x)[i];
  }
}

// Grid: pieces.
EVN_KERNEL void dequantize(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* zero, ulong zero0,
                           global float* y, ulong y0, long count, long chunk, long inner, long length, int type, int has_zero, Epilogue e) {
  const long end = min((long)(get_global_id(0) + 1) * chunk, count);
  for (long i = (long)get_global_id(0) * chunk; i < end;) {
    const long at = i / inner % length;
    const long stop = min(end, (i / inner + 1) * inner);
    const float s = scale[scale0 + at];
    const long z = has_zero ? load_number(zero + zero0, at, type) : 0;
    if (type <= kOfChar) {
      for (; i + EVN_LANES <= stop; i += EVN_LANES) {
        const VI v = load_bytes((global const uchar*)(x + x0) + i, type == kOfChar) - (int)z;
        STOREV(apply_epilogue(TO_VF(v) * s, &e), y + y0 + i);
      }
    }
    for (; i < stop; ++i) y[y0 + i] = apply_epilogue((float)(load_number(x + x0, i, type) - z) * s, &e);
  }
}

// ---- DynamicQuantizeLinear ----

#define EVN_PARTS 64

// The range of each part, 0 included. Grid: parts.
EVN_KERNEL void range_of_parts(global const float* x, ulong x0, global float* range, ulong range0, long count, long chunk) {
  const long part = get_global_id(0);
  if (part >= EVN_PARTS) return;
  const long end = min((part + 1) * chunk, count);
  VF low = (VF)0.0f, high = (VF)0.0f;
  long i = min(part * chunk, count);
  for (; i + EVN_LANES <= end; i += EVN_LANES) {
    const VF v = LOADV(x + x0 + i);
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  float lows[EVN_LANES], highs[EVN_LANES];
  STOREV(low, lows);
  STOREV(high, highs);
  for (int l = 1; l < EVN_LANES; ++l) {
    lows[0] = min(lows[0], lows[l]);
    highs[0] = max(highs[0], highs[l]);
  }
  for (; i < end; ++i) {
    const float v = x[x0 + i];
    lows[0] = v < lows[0] ? v : lows[0];
    highs[0] = v > highs[0] ? v : highs[0];
  }
  range[range0 + part] = lows[0];
  range[range0 + EVN_PARTS + part] = highs[0];
}

// Grid: pieces.
EVN_KERNEL void quantize_by_range(global const float* x, ulong x0, global const float* range, ulong range0, global float* y, ulong y0,
                                  global float* scale, ulong scale0, global float* zero, ulong zero0, long count, long chunk, int wants) {
  float low = 0.0f, high = 0.0f;
  for (int i = 0; i < EVN_PARTS; ++i) {
    low = min(low, range[range0 + i]);
    high = max(high, range[range0 + EVN_PARTS + i]);
  }
  const float s = high == low ? 1.0f : quotient(high - low, 255.0f);
  const float at = s == 0.0f ? 0.0f : quotient(-low, s);
  const float z = at != at ? 255.0f : clamp(rint(at), 0.0f, 255.0f);
  if (get_global_id(0) == 0) {
    if (wants & 1) scale[scale0] = s;
    if (wants & 2) ((global uchar*)(zero + zero0))[0] = (uchar)z;
  }
  global uchar* out = (global uchar*)(y + y0);
  const long end = min((long)(get_global_id(0) + 1) * chunk, count);
  long i = (long)get_global_id(0) * chunk;
  if (!(wants & 4)) return;
  for (; i + EVN_LANES <= end; i += EVN_LANES) {
    const VF q = s == 0.0f ? (VF)0.0f : rint(quotient(LOADV(x + x0 + i), (VF)s));
    store_vector(saturated(q + z, 0.0f, 255.0f), out + i);
  }
  for (; i < end; ++i) out[i] = (uchar)saturated((s == 0.0f ? 0.0f : rint(quotient(x[x0 + i], s))) + z, 0.0f, 255.0f);
}

// ---- QLinearAdd and QLinearMul ----

typedef struct {
  int multiplies, kind;      // kind of all bytes
  int rank, padding;
  float a_zero, b_zero, a_scale, b_scale, zero, low, high, unused;
  long inner, rows, row_chunk, chunk;
  int a_step, b_step;        // 0 or 1: along the innermost axis
  long dim[8], a_stride[8], b_stride[8];
} ByteSum;

#define EVN_BYTE_SUM(a, b) ((p.multiplies ? (a) * (b) * p.a_scale : (a) * p.a_scale + (b) * p.b_scale) + p.zero)

// Grid: pieces of rows, groups of rows.
EVN_KERNEL void combine_bytes(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, ByteSum p) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  const bool is_signed = p.kind == kSigned;
  for (long row = first; row < last; ++row) {
    global const uchar* from_a = (global const uchar*)(a + a0) + offset_of(row, p.rank, p.dim, p.a_stride);
    global const uchar* from_b = (global const uchar*)(b + b0) + offset_of(row, p.rank, p.dim, p.b_stride);
    global uchar* to = (global uchar*)(y + y0) + row * p.inner;
    const float one_a = (float)load_byte(from_a, is_signed) - p.a_zero, one_b = (float)load_byte(from_b, is_signed) - p.b_zero;
    long i = begin;
    for (; i + EVN_LANES <= end; i += EVN_LANES) {
      const VF u = p.a_step ? TO_VF(load_bytes(from_a + i, is_signed)) - p.a_zero : (VF)one_a;
      const VF v = p.b_step ? TO_VF(load_bytes(from_b + i, is_signed)) - p.b_zero : (VF)one_b;
      store_vector(saturated(EVN_BYTE_SUM(u, v), p.low, p.high), to + i);
    }
    for (; i < end; ++i) {
      const float u = p.a_step ? (float)load_byte(from_a + i, is_signed) - p.a_zero : one_a;
      const float v = p.b_step ? (float)load_byte(from_b + i, is_signed) - p.b_zero : one_b;
      to[i] = (uchar)((int)saturated(EVN_BYTE_SUM(u, v), p.low, p.high) & 255);
    }
  }
}

// ---- QLinearGlobalAveragePool: the quotient sum * up * 2^shift / (elements * down) of whole numbers, to the nearest, ties to even. up and
// down have 24 bits; shift is from -10 to 80. Grid: planes ----

EVN_KERNEL void mean_of_bytes(global const float* x, ulong x0, global float* y, ulong y0, long planes, long elements, long step, long up,
                              long down, int shift, int x_zero, int y_zero, int is_signed) {
  const long plane = get_global_id(0);
  if (plane >= planes) return;
  // step 1: a plane lies together; else `step` channels lie side by side.
  global const uchar* from = (global const uchar*)(x + x0) + (step == 1 ? plane * elements : plane / step * elements * step + plane % step);
  long sum = 0, i = 0;
  if (step == 1) {
    VI part = (VI)0;
    for (long n = 0; i + EVN_LANES <= elements; i += EVN_LANES) {
      part += load_bytes(from + i, is_signed != 0);
      if (++n % 65536 == 0 || i + 2 * EVN_LANES > elements) {
        int lane[EVN_LANES];
        EVN_CAT(vstore, EVN_LANES)(part, 0, lane);
        for (int l = 0; l < EVN_LANES; ++l) sum += lane[l];
        part = (VI)0;
      }
    }
  }
  for (; i < elements; ++i) sum += load_byte(from + i * step, is_signed != 0);
  sum -= elements * x_zero;
  const bool negative = (sum < 0) != (up < 0);
  // Both products below have 64 bits. Digits that are dropped are below 2^-31 of the mean.
  ulong total = abs(sum), count = max(elements, 1L);
  for (; (count >> 32) != 0; count >>= 1) total >>= 1;
  const ulong top = total * abs(up), bottom = count * (ulong)down;
  // One binary digit of the quotient in each round: those of 2^shift, and one behind the point. From 4096 on the result is an end of the
  // bytes.
  ulong q = top / bottom, rest = top % bottom;
  for (int i = 0; i <= max(shift, 0) && q < 4096; ++i) {
    rest *= 2;
    const ulong digit = rest >= bottom ? 1 : 0;
    rest -= digit * bottom;
    q = 2 * q + digit;
  }
  const int behind = 1 + max(-shift, 0);  // digits of q behind the point
  const ulong fraction = q & ((1UL << behind) - 1), half_way = 1UL << (behind - 1);
  q >>= behind;
  if (fraction > half_way || (fraction == half_way && (rest != 0 || (q & 1)))) ++q;
  const long steps = (negative ? -(long)q : (long)q) + y_zero;
  ((global uchar*)(y + y0))[plane] = (uchar)((int)clamp(steps, is_signed ? -128L : 0L, is_signed ? 127L : 255L) & 255);
}

// ---- ByteTable. Grid: pieces ----

EVN_KERNEL void look_up(global const float* x, ulong x0, global const float* table, ulong table0, global float* y, ulong y0, long count,
                        long chunk) {
  const long end = min((long)(get_global_id(0) + 1) * chunk, count);
  global const uchar* from = (global const uchar*)(x + x0);
  global const uchar* numbers = (global const uchar*)(table + table0);
  global uchar* to = (global uchar*)(y + y0);
  for (long i = (long)get_global_id(0) * chunk; i < end; ++i) to[i] = numbers[from[i]];
}
