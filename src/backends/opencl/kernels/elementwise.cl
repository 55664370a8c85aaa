// Operators that work element by element: activations, and arithmetic with broadcasting.

// Numbers of functions that are no epilogue step, after the steps'.
enum { kSqrt = 100, kExp, kAbs, kNeg, kFloor, kCeil, kReciprocal };

#define EVN_DEFINE_FUNCTION(T)                                                      \
  __attribute__((overloadable)) static inline T apply_function(T x, Step s) {       \
    switch (s.kind) {                                                               \
      case kSqrt: return sqrt(x);                                                   \
      case kExp: return exp_of(x);                                                  \
      case kAbs: return fabs(x);                                                    \
      case kNeg: return -x;                                                         \
      case kFloor: return floor(x);                                                 \
      case kCeil: return ceil(x);                                                   \
      case kReciprocal: return 1.0f / x;                                            \
      default: return apply_step(x, s);                                             \
    }                                                                               \
  }
EVN_DEFINE_FUNCTION(float)
EVN_DEFINE_FUNCTION(VF)

// One function over n contiguous floats, and the epilogue. A work item has `chunk` of them, a multiple of EVN_LANES. y may be x.
EVN_KERNEL void unary(global const float* x, ulong x0, global float* y, ulong y0, long n, long chunk, Step step, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  x += x0;
  y += y0;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(apply_function(LOADV(x + i), step), &e), y + i);
  for (; i < end; ++i) y[i] = apply_epilogue(apply_function(x[i], step), &e);
}

typedef struct {
  int op;           // 0 add, 1 subtract, 2 multiply, 3 divide
  int rank;         // outer axes
  long inner;       // elements of the innermost axis
  long rows;        // product of the outer axes
  long row_chunk;   // rows of one work item
  long chunk;       // elements of a row of one work item, a multiple of EVN_LANES
  int a_step;       // 0 or 1: along the innermost axis
  int b_step;
  long dim[8];      // outer axes, the first varies slowest
  long a_stride[8];
  long b_stride[8];
} Binary;

#define EVN_DEFINE_ARITHMETIC(T)                                                    \
  __attribute__((overloadable)) static inline T arithmetic(T a, T b, int op) {      \
    switch (op) {                                                                   \
      case 0: return a + b;                                                         \
      case 1: return a - b;                                                         \
      case 2: return a * b;                                                         \
      default: return a / b;                                                        \
    }                                                                               \
  }
EVN_DEFINE_ARITHMETIC(float)
EVN_DEFINE_ARITHMETIC(VF)

static inline void binary_row(global const float* a, global const float* b, global float* y, long begin, long end, const Binary* p,
                              const Epilogue* e) {
  long i = begin;
  const int op = p->op;
  if (p->a_step && p->b_step) {
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(arithmetic(LOADV(a + i), LOADV(b + i), op), e), y + i);
  } else if (p->a_step) {
    const VF vb = (VF)b[0];
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(arithmetic(LOADV(a + i), vb, op), e), y + i);
  } else if (p->b_step) {
    const VF va = (VF)a[0];
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(arithmetic(va, LOADV(b + i), op), e), y + i);
  }
  for (; i < end; ++i) y[i] = apply_epilogue(arithmetic(a[i * p->a_step], b[i * p->b_step], op), e);
}

// Grid: pieces of rows, groups of rows.
EVN_KERNEL void binary(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, Binary p,
                       Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  if (begin >= end) return;
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  for (long row = first; row < last; ++row) {
    long a_at = (long)a0, b_at = (long)b0, rest = row;
    for (int i = p.rank - 1; i >= 0; --i) {
      const long position = rest % p.dim[i];
      rest /= p.dim[i];
      a_at += position * p.a_stride[i];
      b_at += position * p.b_stride[i];
    }
    binary_row(a + a_at, b + b_at, y + y0 + row * p.inner, begin, end, &p, &e);
  }
}
