// Operators that look along axes: Softmax, LogSoftmax, LayerNormalization, reductions, ArgMax and ArgMin. The order in which elements
// are added up depends on the length alone.

#include "sums.cl"

__attribute__((overloadable)) static inline VF log_of(VF x) { return log(x); }
__attribute__((overloadable)) static inline float log_of(float x) { return log((VF)x).s0; }

enum { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

static inline float start_of(int op) {
  return op == kMax ? -INFINITY : op == kMin ? INFINITY : op == kProd ? 1.0f : 0.0f;
}

// NaN on either side gives NaN.
#define EVN_DEFINE_FOLD(T)                                                               \
  __attribute__((overloadable, always_inline)) static inline T fold(T a, T x, int op) {  \
    switch (op) {                                                                        \
      case kMax: return a != a || a > x ? a : x;                                         \
      case kMin: return a != a || a < x ? a : x;                                         \
      case kProd: return a * x;                                                          \
      case kL1: return a + fabs(x);                                                      \
      case kL2:                                                                          \
      case kSumSquare: return fma(x, x, a);                                              \
      default: return a + x;                                                             \
    }                                                                                    \
  }                                                                                      \
  __attribute__((overloadable)) static inline T finish_fold(T a, float count, int op) {  \
    return op == kMean ? a / count : op == kL2 ? sqrt(a) : a;                            \
  }
EVN_DEFINE_FOLD(float)
EVN_DEFINE_FOLD(VF)

// The lanes in their order; they are partial results, so that sums of absolutes and squares are plain sums here.
__attribute__((always_inline)) static inline float fold_lanes(VF v, int op) {
  const int plain = op == kL1 || op == kL2 || op == kSumSquare ? kSum : op;
  float lane[EVN_LANES];
  STOREV(v, lane);
  float r = lane[0];
  for (int i = 1; i < EVN_LANES; ++i) r = fold(r, lane[i], plain);
  return r;
}

// Folds chains of elements, and what they give. Of maxima, minima and products the sum is the result so far.
#define EVN_IS_SUM(op) ((op) != kMax && (op) != kMin && (op) != kProd)
#define EVN_DEFINE_FOLDS(NAME, T)                                                                   \
  __attribute__((overloadable, always_inline)) static inline void start_fold(NAME* s, int op) {     \
    start(s);                                                                                       \
    s->sum = s->part = (T)start_of(op);                                                             \
  }                                                                                                 \
  __attribute__((overloadable, always_inline)) static inline void end_fold(NAME* s, int op) {       \
    if (EVN_IS_SUM(op)) {                                                                           \
      end_chain(s);                                                                                 \
    } else {                                                                                        \
      s->sum = fold(s->sum, s->part, op);                                                           \
      s->part = (T)start_of(op);                                                                    \
      s->left = EVN_CHAIN;                                                                          \
    }                                                                                               \
  }                                                                                                 \
  __attribute__((overloadable, always_inline)) static inline T folded(NAME* s, int op) {            \
    end_fold(s, op);                                                                                \
    return EVN_IS_SUM(op) ? s->sum + s->part : s->sum;                                              \
  }
EVN_DEFINE_FOLDS(Sum, float)
EVN_DEFINE_FOLDS(Sums, VF)

__attribute__((always_inline)) static inline void fold_run(Sum* r, global const float* x, long n, int op) {
  const int plain = op == kL1 || op == kL2 || op == kSumSquare ? kSum : op;
  long i = 0;
  while (i + 2 * EVN_LANES <= n) {
    const long end = min(n, i + 2 * EVN_LANES * EVN_CHAIN);
    VF s0 = (VF)start_of(op), s1 = (VF)start_of(op);
    for (; i + 2 * EVN_LANES <= end; i += 2 * EVN_LANES) {
      s0 = fold(s0, LOADV(x + i), op);
      s1 = fold(s1, LOADV(x + i + EVN_LANES), op);
    }
    r->part = fold(r->part, fold_lanes(fold(s0, s1, plain), op), plain);
    end_fold(r, op);
  }
  for (; i < n; ++i) r->part = fold(r->part, x[i], op);
  end_fold(r, op);
}

__attribute__((always_inline)) static inline float fold_row(global const float* x, long n, int op) {
  Sum r;
  start_fold(&r, op);
  fold_run(&r, x, n, op);
  return folded(&r, op);
}

typedef struct {
  int op;
  int kept;        // outer axes of the output
  int reduced;     // outer axes that are reduced
  int padding;
  long length;     // elements of the innermost reduced axis
  long step;       // between them; over rows it is 1
  long inner;      // over columns: neighbouring outputs, which lie side by side in the input
  long outputs;    // over rows: all; over columns: groups of `inner`
  long runs;       // product of the outer reduced axes
  long chunk;      // outputs of one work item, over rows; columns of one, over columns
  float count;     // elements to one output
  float padding2;
  long kept_dim[8], kept_stride[8];
  long reduced_dim[8], reduced_stride[8];
} Reduce;

// Calls F(op) with a number that the compiler knows, so that no loop looks at it. What folds alike shares its code.
#define EVN_FOR_FOLD(op, F)                \
  switch (op) {                            \
    case kMax: F(kMax) break;              \
    case kMin: F(kMin) break;              \
    case kProd: F(kProd) break;            \
    case kL1: F(kL1) break;                \
    case kL2:                              \
    case kSumSquare: F(kSumSquare) break;  \
    default: F(kSum) break;                \
  }

// The innermost axis is reduced. Grid: pieces of the outputs.
EVN_KERNEL void reduce_rows(global const float* x, ulong x0, global float* y, ulong y0, Reduce p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.outputs);
  for (long i = begin; i < end; ++i) {
    global const float* in = x + x0 + offset_of(i, p.kept, p.kept_dim, p.kept_stride);
    Sum r;
    start_fold(&r, p.op);
    for (long run = 0; run < p.runs; ++run) {
      global const float* from = in + offset_of(run, p.reduced, p.reduced_dim, p.reduced_stride);
#define EVN_FOLD_RUN(OP) fold_run(&r, from, p.length, OP);
      EVN_FOR_FOLD(p.op, EVN_FOLD_RUN)
    }
    y[y0 + i] = apply_epilogue(finish_fold(folded(&r, p.op), p.count, p.op), &e);
  }
}

// Chains go on from run to run.
#define EVN_FOLD_STEPS(VALUE, OP)                             \
  for (long i = 0; i < p.length;) {                           \
    const long last = min(p.length, i + r.left);              \
    r.left -= (int)(last - i);                                \
    for (; i < last; ++i) r.part = fold(r.part, VALUE, OP);   \
    if (r.left == 0) end_fold(&r, OP);                        \
  }

// The innermost axis is kept. Grid: pieces of `inner`, groups.
EVN_KERNEL void reduce_columns(global const float* x, ulong x0, global float* y, ulong y0, Reduce p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long group = get_global_id(1);
  global const float* in = x + x0 + offset_of(group, p.kept, p.kept_dim, p.kept_stride);
  global float* out = y + y0 + group * p.inner;
  long c = begin;
  for (; c + EVN_LANES <= end; c += EVN_LANES) {
    Sums r;
    start_fold(&r, p.op);
    for (long run = 0; run < p.runs; ++run) {
      global const float* from = in + offset_of(run, p.reduced, p.reduced_dim, p.reduced_stride) + c;
#define EVN_FOLD_VECTORS(OP) EVN_FOLD_STEPS(LOADV(from + i * p.step), OP)
      EVN_FOR_FOLD(p.op, EVN_FOLD_VECTORS)
    }
    STOREV(apply_epilogue(finish_fold(folded(&r, p.op), p.count, p.op), &e), out + c);
  }
  for (; c < end; ++c) {
    Sum r;
    start_fold(&r, p.op);
    for (long run = 0; run < p.runs; ++run) {
      global const float* from = in + offset_of(run, p.reduced, p.reduced_dim, p.reduced_stride) + c;
      EVN_FOLD_STEPS(from[i * p.step], p.op)
    }
    out[c] = apply_epilogue(finish_fold(folded(&r, p.op), p.count, p.op), &e);
  }
}

// x seen as [outer, length, inner]; of equal elements the first, or the last; NaN is the extreme, each equal to the others. Grid: pieces of the
// outputs.
EVN_KERNEL void arg_extreme(global const float* x, ulong x0, global float* y, ulong y0, long outputs, long length, long inner, long chunk,
                            int maximum, int last) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, outputs);
  global long* out = (global long*)(y + y0);
  for (long o = begin; o < end; ++o) {
    global const float* in = x + x0 + o / inner * length * inner + o % inner;
    float best = in[0];
    long found = 0;
    for (long i = 1; i < length; ++i) {
      const float v = in[i * inner];
      if (best != best ? last && v != v : v != v || (maximum ? v > best : v < best) || (last && v == best)) {
        best = v;
        found = i;
      }
    }
    out[o] = found;
  }
}

// ---- Softmax ----

// One row of elements that lie side by side. Grid: pieces of the rows. y may be x.
EVN_KERNEL void softmax_rows(global const float* x, ulong x0, global float* y, ulong y0, long rows, long length, long chunk, int logarithm,
                             Epilogue e) {
  const long first = (long)get_global_id(0) * chunk;
  const long last = min(first + chunk, rows);
  for (long row = first; row < last; ++row) {
    global const float* in = x + x0 + row * length;
    global float* out = y + y0 + row * length;
    const float top = fold_row(in, length, kMax);
    Sums sums;
    start(&sums);
    float sum = 0.0f;  // of fewer elements than a vector has
    long i = 0;
    for (; i + EVN_LANES <= length; i += EVN_LANES) {
      const VF v = exp_of(LOADV(in + i) - top);
      add(&sums, v);
      if (!logarithm) STOREV(v, out + i);
    }
    for (; i < length; ++i) {
      const float v = exp_of(in[i] - top);
      sum += v;
      if (!logarithm) out[i] = v;
    }
    sum += sum_of_lanes(total(&sums));
    const float shift = logarithm ? log_of(sum) : 0.0f;
    i = 0;
    for (; i + EVN_LANES <= length; i += EVN_LANES) {
      const VF v = logarithm ? LOADV(in + i) - top - shift : LOADV(out + i) / sum;
      STOREV(apply_epilogue(v, &e), out + i);
    }
    for (; i < length; ++i) out[i] = apply_epilogue(logarithm ? in[i] - top - shift : out[i] / sum, &e);
  }
}

#define EVN_SOFTMAX_COLUMN(T, TOTAL, LOAD, STORE)                                   \
  {                                                                                 \
    T top = LOAD(in + c);                                                           \
    for (long i = 1; i < length; ++i) top = fold(top, LOAD(in + c + i * inner), kMax); \
    TOTAL all;                                                                      \
    start(&all);                                                                    \
    for (long i = 0; i < length; ++i) {                                             \
      const T v = exp_of(LOAD(in + c + i * inner) - top);                           \
      add(&all, v);                                                                 \
      if (!logarithm) STORE(v, out + c + i * inner);                                \
    }                                                                               \
    const T sum = total(&all);                                                      \
    const T shift = logarithm ? log_of(sum) : (T)0.0f;                              \
    for (long i = 0; i < length; ++i) {                                             \
      const long at = c + i * inner;                                                \
      const T v = logarithm ? LOAD(in + at) - top - shift : LOAD(out + at) / sum;   \
      STORE(apply_epilogue(v, &e), out + at);                                       \
    }                                                                               \
  }
#define EVN_LOAD1(p) (*(p))
#define EVN_STORE1(v, p) *(p) = (v)

// Over an axis whose elements lie `inner` apart. Grid: pieces of `inner`, outer.
EVN_KERNEL void softmax_columns(global const float* x, ulong x0, global float* y, ulong y0, long length, long inner, long chunk,
                                int logarithm, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, inner);
  const long outer = get_global_id(1);
  global const float* in = x + x0 + outer * length * inner;
  global float* out = y + y0 + outer * length * inner;
  long c = begin;
  for (; c + EVN_LANES <= end; c += EVN_LANES) EVN_SOFTMAX_COLUMN(VF, Sums, LOADV, STOREV)
  for (; c < end; ++c) EVN_SOFTMAX_COLUMN(float, Sum, EVN_LOAD1, EVN_STORE1)
}

// ---- LayerNormalization ----

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, row by row. Grid: pieces of the rows. y may be x.
EVN_KERNEL void layer_norm(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* bias, ulong bias0,
                           global float* y, ulong y0, long rows, long length, long chunk, float epsilon, int has_bias, Epilogue e) {
  const long first = (long)get_global_id(0) * chunk;
  const long last = min(first + chunk, rows);
  scale += scale0;
  bias += bias0;
  for (long row = first; row < last; ++row) {
    global const float* in = x + x0 + row * length;
    global float* out = y + y0 + row * length;
    const float mean = fold_row(in, length, kSum) / (float)length;
    Sums squares;
    start(&squares);
    float square = 0.0f;
    long i = 0;
    for (; i + EVN_LANES <= length; i += EVN_LANES) {
      const VF d = LOADV(in + i) - mean;
      add_product(&squares, d, d);
    }
    for (; i < length; ++i) square = fma(in[i] - mean, in[i] - mean, square);
    square += sum_of_lanes(total(&squares));
    const float factor = 1.0f / sqrt(square / (float)length + epsilon);
    i = 0;
    for (; i + EVN_LANES <= length; i += EVN_LANES) {
      const VF v = fma((LOADV(in + i) - mean) * factor, LOADV(scale + i), has_bias ? LOADV(bias + i) : (VF)0.0f);
      STOREV(apply_epilogue(v, &e), out + i);
    }
    for (; i < length; ++i) out[i] = apply_epilogue(fma((in[i] - mean) * factor, scale[i], has_bias ? bias[i] : 0.0f), &e);
  }
}
