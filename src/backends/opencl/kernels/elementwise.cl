// Operators that work element by element: activations, and arithmetic with broadcasting.

// Numbers of functions that are no epilogue step, after the steps'.
enum { kSqrt = 100, kExp, kAbs, kNeg, kFloor, kCeil, kReciprocal, kLog, kErf, kGelu, kGeluTanh, kSoftplus, kSoftsign, kElu, kSelu, kRound,
       kSign, kSin, kCos, kMish, kTan };

// Far from 0 drivers reduce the argument by other code, for all lanes of a vector when one is there, and with errors near 0. So lanes
// there are computed apart, and an element has the same bits beside any other.
#define EVN_DEFINE_PERIODIC(NAME, F)                       \
  static inline VF NAME(VF x) {                            \
    const VI far = fabs(x) > (VF)32768.0f;                 \
    const VF near = F(far ? (VF)0.0f : x);                 \
    if (!any(far)) return near;                            \
    return far ? F(far ? x : (VF)1e9f) : near;             \
  }
EVN_DEFINE_PERIODIC(sin_of, sin)
EVN_DEFINE_PERIODIC(cos_of, cos)

static inline VF softplus_of(VF x) { return (x > (VF)0.0f ? x : (VF)0.0f) + log1p(exp(-fabs(x))); }

__attribute__((overloadable)) static inline VF apply_function(VF x, EpilogueOp s) {
  switch (s.kind) {
    case kSqrt: return sqrt(x);
    case kExp: return exp(x);
    case kAbs: return fabs(x);
    case kNeg: return -x;
    case kFloor: return floor(x);
    case kCeil: return ceil(x);
    case kReciprocal: return 1.0f / x;
    case kLog: return log(x);
    case kErf: return erf_of(x);
    case kGelu: return 0.5f * x * (1.0f + erf_of(x * 0.70710678118654752f));
    case kGeluTanh: return gelu_tanh_of(x);
    case kSoftplus: return softplus_of(x);
    case kSoftsign: return x / (1.0f + fabs(x));
    case kElu: return x < (VF)0.0f ? s.a * expm1(x) : x;
    case kSelu: return s.b * (x < (VF)0.0f ? s.a * expm1(x) : x);
    case kRound: return rint(x);
    case kSign: return x > (VF)0.0f ? (VF)1.0f : x < (VF)0.0f ? (VF)-1.0f : x == (VF)0.0f ? (VF)0.0f : x;
    case kSin: return sin_of(x);
    case kCos: return cos_of(x);
    case kTan: return sin_of(x) / cos_of(x);
    case kMish: return x * tanh(softplus_of(x));
    default: return apply_epilogue_op(x, s);
  }
}
// Computes as a vector, so that an element has the same bits wherever it lies.
__attribute__((overloadable)) static inline float apply_function(float x, EpilogueOp s) { return apply_function((VF)x, s).s0; }

// One function over n contiguous floats, and the epilogue. A work item has `chunk` of them, a multiple of EVN_LANES. y may be x.
EVN_KERNEL void unary(global const float* x, ulong x0, global float* y, ulong y0, long n, long chunk, EpilogueOp step, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  x += x0;
  y += y0;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(apply_function(LOADV(x + i), step), &e), y + i);
  for (; i < end; ++i) y[i] = apply_epilogue(apply_function(x[i], step), &e);
}

// Between bounds that lie in memory; NaN stays. Grid as of `unary`.
EVN_KERNEL void clip_between(global const float* x, ulong x0, global const float* low, ulong low0, global const float* high, ulong high0,
                             global float* y, ulong y0, long n, long chunk, int has_low, int has_high, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  const float a = has_low ? low[low0] : -INFINITY, b = has_high ? high[high0] : INFINITY;
  x += x0;
  y += y0;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(clamp_to(LOADV(x + i), a, b), &e), y + i);
  for (; i < end; ++i) y[i] = apply_epilogue(clamp_to(x[i], a, b), &e);
}

typedef struct {
  int op;           // 0 add, 1 subtract, 2 multiply, 3 divide, 4 minimum, 5 maximum, 6 PRelu, 7 the first; binary_power: 8 fmod
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

// NaN on either side gives NaN.
#define EVN_DEFINE_ARITHMETIC(T)                                                    \
  __attribute__((overloadable)) static inline T arithmetic(T a, T b, int op) {      \
    switch (op) {                                                                   \
      case 0: return a + b;                                                         \
      case 1: return a - b;                                                         \
      case 2: return a * b;                                                         \
      case 4: return a != a || a < b ? a : b;                                       \
      case 5: return a != a || a > b ? a : b;                                       \
      case 6: return a < (T)0.0f ? a * b : a;                                       \
      case 7: return a;                                                             \
      default: return a / b;                                                        \
    }                                                                               \
  }
EVN_DEFINE_ARITHMETIC(float)
EVN_DEFINE_ARITHMETIC(VF)
__attribute__((overloadable)) static inline VF power(VF a, VF b, int op) { return op == 8 ? fmod(a, b) : pow(a, b); }
__attribute__((overloadable)) static inline float power(float a, float b, int op) { return power((VF)a, (VF)b, op).s0; }

// Grid: pieces of rows, groups of rows.
#define EVN_DEFINE_BINARY(NAME, F)                                                                                                \
  static inline void NAME##_row(global const float* a, global const float* b, global float* y, long begin, long end, const Binary* p, \
                                const Epilogue* e) {                                                                              \
    long i = begin;                                                                                                               \
    const int op = p->op;                                                                                                         \
    if (p->a_step && p->b_step) {                                                                                                 \
      for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(F(LOADV(a + i), LOADV(b + i), op), e), y + i);           \
    } else if (p->a_step) {                                                                                                       \
      const VF vb = (VF)b[0];                                                                                                     \
      for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(F(LOADV(a + i), vb, op), e), y + i);                     \
    } else if (p->b_step) {                                                                                                       \
      const VF va = (VF)a[0];                                                                                                     \
      for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(F(va, LOADV(b + i), op), e), y + i);                     \
    }                                                                                                                             \
    for (; i < end; ++i) y[i] = apply_epilogue(F(a[i * p->a_step], b[i * p->b_step], op), e);                                     \
  }                                                                                                                               \
  EVN_KERNEL void NAME(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, Binary p,     \
                       Epilogue e) {                                                                                              \
    const long begin = (long)get_global_id(0) * p.chunk;                                                                          \
    const long end = min(begin + p.chunk, p.inner);                                                                               \
    if (begin >= end) return;                                                                                                     \
    const long first = (long)get_global_id(1) * p.row_chunk;                                                                      \
    const long last = min(first + p.row_chunk, p.rows);                                                                           \
    for (long row = first; row < last; ++row) {                                                                                   \
      long a_at = (long)a0, b_at = (long)b0, rest = row;                                                                          \
      for (int i = p.rank - 1; i >= 0; --i) {                                                                                     \
        const long position = rest % p.dim[i];                                                                                    \
        rest /= p.dim[i];                                                                                                         \
        a_at += position * p.a_stride[i];                                                                                         \
        b_at += position * p.b_stride[i];                                                                                         \
      }                                                                                                                           \
      NAME##_row(a + a_at, b + b_at, y + y0 + row * p.inner, begin, end, &p, &e);                                                 \
    }                                                                                                                             \
  }
EVN_DEFINE_BINARY(binary, arithmetic)
EVN_DEFINE_BINARY(binary_power, power)
