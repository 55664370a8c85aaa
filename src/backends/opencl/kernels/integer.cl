// Whole numbers: arithmetic with broadcasting, reductions, ArgMax and ArgMin, computed in 64 bits, of which the element's are kept.
// Division by 0, which no kernel can report, gives 0. And what takes elements in their order, of floats too: CumSum, CumProd,
// ReduceLogSum, ReduceLogSumExp.

enum { kUchar, kChar, kUshort, kShort, kUint, kInt, kUlong, kLong };

static inline long load_whole(global const float* x, long i, int type) {
  switch (type) {
    case kUchar: return ((global const uchar*)x)[i];
    case kChar: return ((global const char*)x)[i];
    case kUshort: return ((global const ushort*)x)[i];
    case kShort: return ((global const short*)x)[i];
    case kUint: return ((global const uint*)x)[i];
    case kInt: return ((global const int*)x)[i];
    default: return ((global const long*)x)[i];
  }
}

static inline void store_whole(global float* y, long i, int type, long v) {
  switch (type) {
    case kUchar:
    case kChar: ((global char*)y)[i] = (char)v; break;
    case kUshort:
    case kShort: ((global short*)y)[i] = (short)v; break;
    case kUint:
    case kInt: ((global int*)y)[i] = (int)v; break;
    default: ((global long*)y)[i] = v; break;
  }
}

enum {
  kWholeAdd, kWholeSub, kWholeMul, kWholeDiv, kWholeFmod, kWholeMod, kWholeMin, kWholeMax, kWholeAnd, kWholeOr, kWholeXor, kWholeShiftLeft,
  kWholeShiftRight, kWholePRelu, kWholeFirst, kWholeAbs, kWholeNeg, kWholeSign, kWholeRelu, kWholeNot
};

static inline int bits_of(int type) { return 8 << type / 2; }
static inline bool less(long a, long b, int type) { return type == kUlong ? (ulong)a < (ulong)b : a < b; }

static inline long divide(long a, long b, int type) {
  if (b == 0) return 0;
  if (type == kUlong) return (long)((ulong)a / (ulong)b);
  return b == -1 ? (long)(0 - (ulong)a) : a / b;
}

static inline long remainder_of(long a, long b, int type) {
  if (b == 0) return 0;
  if (type == kUlong) return (long)((ulong)a % (ulong)b);
  return b == -1 ? 0 : a % b;
}

static inline long shift_right(long a, long b, int type) {
  const bool is_signed = type % 2 == 1;
  if ((is_signed && b < 0) || (ulong)b >= (ulong)bits_of(type)) return is_signed && a < 0 ? -1 : 0;
  return type == kUlong ? (long)((ulong)a >> b) : a >> b;
}

static inline long calculate(long a, long b, int op, int type) {
  switch (op) {
    case kWholeAdd: return (long)((ulong)a + (ulong)b);
    case kWholeSub: return (long)((ulong)a - (ulong)b);
    case kWholeMul: return (long)((ulong)a * (ulong)b);
    case kWholeDiv: return divide(a, b, type);
    case kWholeFmod: return remainder_of(a, b, type);
    case kWholeMod: {
      const long r = remainder_of(a, b, type);
      return r != 0 && type % 2 == 1 && (r < 0) != (b < 0) ? r + b : r;
    }
    case kWholeMin: return less(a, b, type) ? a : b;
    case kWholeMax: return less(b, a, type) ? a : b;
    case kWholeAnd: return a & b;
    case kWholeOr: return a | b;
    case kWholeXor: return a ^ b;
    case kWholeShiftLeft: return (ulong)b >= (ulong)bits_of(type) ? 0 : (long)((ulong)a << b);
    case kWholeShiftRight: return shift_right(a, b, type);
    case kWholePRelu: return type % 2 == 1 && a < 0 ? (long)((ulong)a * (ulong)b) : a;
    case kWholeAbs: return type % 2 == 1 && a < 0 ? (long)(0 - (ulong)a) : a;
    case kWholeNeg: return (long)(0 - (ulong)a);
    case kWholeSign: return a == 0 ? 0 : type % 2 == 1 && a < 0 ? -1 : 1;
    case kWholeRelu: return type % 2 == 1 && a < 0 ? 0 : a;
    case kWholeNot: return ~a;
    default: return a;
  }
}

typedef struct {
  int op, type;
  int rank;         // outer axes
  int padding;
  long inner;       // elements of the innermost axis
  long rows;        // product of the outer axes
  long row_chunk;   // rows of one work item
  long chunk;       // elements of a row of one work item
  int a_step;       // 0 or 1: along the innermost axis
  int b_step;
  long dim[8];      // outer axes, the first varies slowest
  long a_stride[8];
  long b_stride[8];
} Whole;

// Functions of one input have it twice. y may be a or b where these have its shape. Grid: pieces of rows, groups of rows.
EVN_KERNEL void whole(global const float* a, ulong a0, global const float* b, ulong b0, global float* y, ulong y0, Whole p) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  for (long row = first; row < last; ++row) {
    long a_at = 0, b_at = 0, rest = row;
    for (int i = p.rank - 1; i >= 0; --i) {
      const long position = rest % p.dim[i];
      rest /= p.dim[i];
      a_at += position * p.a_stride[i];
      b_at += position * p.b_stride[i];
    }
    for (long i = begin; i < end; ++i) {
      const long u = load_whole(a + a0, a_at + i * p.a_step, p.type), v = load_whole(b + b0, b_at + i * p.b_step, p.type);
      store_whole(y + y0, row * p.inner + i, p.type, calculate(u, v, p.op, p.type));
    }
  }
}

// A sum of floats and what rounding took from it.
typedef struct {
  float sum, rest;
} Exact;

static inline Exact plus(Exact a, float x) {
  const float sum = a.sum + x;
  const float lost = fabs(a.sum) >= fabs(x) ? (a.sum - sum) + x : (x - sum) + a.sum;
  const float rest = a.rest + lost, all = sum + rest;  // the rest stays below a unit of the sum, or would round itself
  Exact r = {all, rest - (all - sum)};
  if (!(fabs(r.rest) < INFINITY)) {  // infinities and NaN have none
    r.sum = sum;
    r.rest = 0.0f;
  }
  return r;
}

enum { kFoldSum, kFoldMean, kFoldMax, kFoldMin, kFoldProd, kFoldL1, kFoldSumSquare, kFoldLogSum, kFoldLogSumExp };

typedef struct {
  int op, type;
  int kept, reduced;            // axes
  long outputs, count, chunk;   // count: elements to one output; chunk: outputs of a work item
  long kept_dim[8], kept_stride[8];
  long reduced_dim[8], reduced_stride[8];
} Fold;

static inline long fold_whole(long a, long x, int op, int type) {
  switch (op) {
    case kFoldMax: return less(a, x, type) ? x : a;
    case kFoldMin: return less(x, a, type) ? x : a;
    case kFoldProd: return (long)((ulong)a * (ulong)x);
    case kFoldL1: return (long)((ulong)a + (type != kUlong && x < 0 ? 0 - (ulong)x : (ulong)x));
    case kFoldSumSquare: return (long)((ulong)a + (ulong)x * (ulong)x);
    default: return (long)((ulong)a + (ulong)x);
  }
}

// Grid: pieces of the outputs.
EVN_KERNEL void fold_integers(global const float* x, ulong x0, global float* y, ulong y0, Fold p) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.outputs);
  for (long i = begin; i < end; ++i) {
    const long from = offset_of(i, p.kept, p.kept_dim, p.kept_stride);
    long r = p.op == kFoldMax || p.op == kFoldMin ? load_whole(x + x0, from, p.type) : p.op == kFoldProd ? 1 : 0;
    for (long k = 0; k < p.count; ++k) {
      r = fold_whole(r, load_whole(x + x0, from + offset_of(k, p.reduced, p.reduced_dim, p.reduced_stride), p.type), p.op, p.type);
    }
    if (p.op == kFoldMean) r = p.type == kUint || p.type == kUlong ? (long)((ulong)r / (ulong)p.count) : r / p.count;
    store_whole(y + y0, i, p.type, r);
  }
}

// Reduces floats to the log of the sum, or of the sum of exp, which is taken relative to the largest. Grid: pieces of the outputs.
EVN_KERNEL void fold_logs(global const float* x, ulong x0, global float* y, ulong y0, Fold p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.outputs);
  for (long i = begin; i < end; ++i) {
    global const float* from = x + x0 + offset_of(i, p.kept, p.kept_dim, p.kept_stride);
    float top = p.op == kFoldLogSum ? 0.0f : -INFINITY;
    for (long k = 0; p.op == kFoldLogSumExp && k < p.count; ++k) {
      const float v = from[offset_of(k, p.reduced, p.reduced_dim, p.reduced_stride)];
      top = top != top || top > v ? top : v;
    }
    Exact sum = {0.0f, 0.0f};
    const bool finite = top - top == 0.0f;
    for (long k = 0; finite && k < p.count; ++k) {
      const float v = from[offset_of(k, p.reduced, p.reduced_dim, p.reduced_stride)];
      sum = plus(sum, p.op == kFoldLogSum ? v : exp_of(v - top));
    }
    const float r = finite ? top + log((VF)(sum.sum + sum.rest)).s0 : top;
    y[y0 + i] = apply_epilogue(r, &e);
  }
}

// x seen as [outer, length, inner]; of equal elements the first, or the last. Grid: pieces of the outputs.
EVN_KERNEL void arg_integers(global const float* x, ulong x0, global float* y, ulong y0, long outputs, long length, long inner,
                             long chunk, int maximum, int last, int type) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, outputs);
  for (long o = begin; o < end; ++o) {
    const long from = o / inner * length * inner + o % inner;
    long best = load_whole(x + x0, from, type), found = 0;
    for (long i = 1; i < length; ++i) {
      const long v = load_whole(x + x0, from + i * inner, type);
      if ((maximum ? less(best, v, type) : less(v, best, type)) || (last && v == best)) {
        best = v;
        found = i;
      }
    }
    ((global long*)(y + y0))[o] = found;
  }
}

// Rows of `length` elements that are `inner` apart, of x [outer, length, inner]. Grid: pieces of the rows.
EVN_KERNEL void accumulate_integers(global const float* x, ulong x0, global float* y, ulong y0, long rows, long length, long inner,
                                    long chunk, int product, int exclusive, int backwards, int type) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, rows);
  for (long row = begin; row < end; ++row) {
    const long base = row / inner * length * inner + row % inner;
    ulong total = product ? 1 : 0;
    for (long i = 0; i < length; ++i) {
      const long at = base + (backwards ? length - 1 - i : i) * inner;
      const ulong v = (ulong)load_whole(x + x0, at, type), next = product ? total * v : total + v;
      store_whole(y + y0, at, type, (long)(exclusive ? total : next));
      total = next;
    }
  }
}

EVN_KERNEL void accumulate_floats(global const float* x, ulong x0, global float* y, ulong y0, long rows, long length, long inner,
                                  long chunk, int product, int exclusive, int backwards, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, rows);
  for (long row = begin; row < end; ++row) {
    const long base = row / inner * length * inner + row % inner;
    Exact total = {product ? 1.0f : 0.0f, 0.0f};
    for (long i = 0; i < length; ++i) {
      const long at = base + (backwards ? length - 1 - i : i) * inner;
      const float v = x[x0 + at];
      Exact next = {total.sum * v, 0.0f};
      if (!product) next = plus(total, v);
      y[y0 + at] = apply_epilogue(exclusive ? total.sum + total.rest : next.sum + next.rest, &e);
      total = next;
    }
  }
}
