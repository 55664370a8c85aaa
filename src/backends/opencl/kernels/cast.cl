// Cast: elements of one type to another, by way of a float or a long, which hold each of these types exactly.

enum { kFloat, kHalf, kBool, kUchar, kChar, kUshort, kShort, kUint, kInt, kLong };

typedef struct {
  float real;
  long whole;
} Number;  // one of the two, as the type says

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

static inline void store_number(Number n, bool real, global float* y, long i, int type, const Epilogue* e) {
  const float f = real ? n.real : (float)n.whole;
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
  }
}

// Grid: pieces.
EVN_KERNEL void cast(global const float* x, ulong x0, global float* y, ulong y0, long count, long chunk, int from, int to, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, count);
  const bool real = from == kFloat || from == kHalf;
  for (long i = begin; i < end; ++i) store_number(load_number(x + x0, i, from), real, y + y0, i, to, &e);
}
