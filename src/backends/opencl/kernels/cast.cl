// Cast: elements of one type to another, by way of a float or a long, which hold each of these types exactly.

enum { kFloat, kHalf, kBool, kUchar, kChar, kUshort, kShort, kUint, kInt, kLong, kUlong, kBfloat };

typedef struct {
  float real;
  long whole;
} Number;  // one of the two, as the type says; of ulong its bits

static inline Number load_number(global const float* x, long i, int type) {
  Number n = {0.0f, 0};
  switch (type) {
    case kFloat: n.real = x[i]; break;
    case kHalf: n.real = vload_half(i, (global const half*)x); break;
    case kBool: n.whole = ((global const uchar*)x)[i] != 0; break;
    case kUchar: n.whole = ((global const uchar*)x)[i]; break;
    case kChar: n.whole = ((global const char*)x)[i]; break;
    case kUshort: n.whole = ((global const ushort*)x)[i]; break;
    case kShort: n.whole = ((global const short*)x)[i]; break;
    case kUint: n.whole = ((global const uint*)x)[i]; break;
    case kInt: n.whole = ((global const int*)x)[i]; break;
    case kBfloat: n.real = as_float((uint)((global const ushort*)x)[i] << 16); break;
    default: n.whole = ((global const long*)x)[i]; break;
  }
  return n;
}

// A float becomes the nearest end of the range where it lies outside, and 0 where it is none; whole numbers wrap.
#define EVN_STORE(CASE, T)                                                                                                        \
  case CASE: {                                                                                                                    \
    ((global T*)y)[i] = !real ? (T)n.whole : n.real != n.real ? (T)0 : EVN_CAT(EVN_CAT(convert_, T), _sat)(n.real);               \
    break;                                                                                                                        \
  }

// Rounds a whole number towards zero with the last bit set where it is inexact: rounded to fewer bits, that gives what the number would.
static inline float odd_float(long whole, bool is_unsigned) {
  const float f = is_unsigned ? convert_float_rtz((ulong)whole) : convert_float_rtz(whole);
  const bool exact = is_unsigned ? convert_ulong_sat(f) == (ulong)whole : convert_long_sat(f) == whole;
  return exact ? f : as_float(as_uint(f) | 1u);
}

// To nearest, ties to even.
static inline ushort bfloat_bits(float f) {
  const uint bits = as_uint(f);
  if (f != f) return (ushort)((bits >> 16 & 0x8000u) | 0x7fc0u);
  return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline void store_number(Number n, bool real, bool is_unsigned, global float* y, long i, int type, const Epilogue* e) {
  const float f = real ? n.real : is_unsigned ? (float)(ulong)n.whole : (float)n.whole;
  switch (type) {
    case kFloat: y[i] = apply_epilogue(f, e); break;
    case kHalf: vstore_half_rte(f, i, (global half*)y); break;
    case kBool: ((global uchar*)y)[i] = (real ? n.real != 0.0f : n.whole != 0) ? 1 : 0; break;
    EVN_STORE(kUchar, uchar)
    EVN_STORE(kChar, char)
    EVN_STORE(kUshort, ushort)
    EVN_STORE(kShort, short)
    EVN_STORE(kUint, uint)
    EVN_STORE(kInt, int)
    EVN_STORE(kLong, long)
    EVN_STORE(kUlong, ulong)
    case kBfloat: ((global ushort*)y)[i] = bfloat_bits(real ? n.real : odd_float(n.whole, is_unsigned)); break;
  }
}

// Grid: pieces.
EVN_KERNEL void cast(global const float* x, ulong x0, global float* y, ulong y0, long count, long chunk, int from, int to, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, count);
  const bool real = from == kFloat || from == kHalf || from == kBfloat;
  for (long i = begin; i < end; ++i) store_number(load_number(x + x0, i, from), real, from == kUlong, y + y0, i, to, &e);
}
