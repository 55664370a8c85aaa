// Normalizations of rows that lie side by side, and of lines through any axes; Hardmax. Scales and biases are arithmetic of their own
// (elementwise.cl). The order in which elements are added up depends on their number alone.

#include "sums.cl"

enum { kMoments, kRootMeanSquare, kDeviation, kSum1, kSum2 };

// The sum of x - shift, or of its squares.
static inline float sum_row(global const float* x, long n, float shift, int squares) {
  Sums s;
  start(&s);
  float sum = 0.0f;  // of fewer elements than a vector has
  long i = 0;
  for (; i + EVN_LANES <= n; i += EVN_LANES) {
    const VF d = LOADV(x + i) - shift;
    if (squares) add_product(&s, d, d);
    else add(&s, d);
  }
  for (; i < n; ++i) {
    const float d = x[i] - shift;
    sum = squares ? fma(d, d, sum) : sum + d;
  }
  return sum + sum_of_lanes(total(&s));
}

// (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon); where wanted, the mean and the factor too.
// Grid: pieces of the rows. y may be x.
EVN_KERNEL void normalize_rows(global const float* x, ulong x0, global float* y, ulong y0, global float* means, ulong means0,
                               global float* factors, ulong factors0, long rows, long length, long chunk, float epsilon, int kind,
                               int has_mean, int has_factor, Epilogue e) {
  const long first = (long)get_global_id(0) * chunk;
  const long last = min(first + chunk, rows);
  for (long row = first; row < last; ++row) {
    global const float* in = x + x0 + row * length;
    global float* out = y + y0 + row * length;
    const float mean = kind == kMoments ? sum_row(in, length, 0.0f, 0) / (float)length : 0.0f;
    const float factor = 1.0f / sqrt(sum_row(in, length, mean, 1) / (float)length + epsilon);
    long i = 0;
    for (; i + EVN_LANES <= length; i += EVN_LANES) STOREV(apply_epilogue((LOADV(in + i) - mean) * factor, &e), out + i);
    for (; i < length; ++i) out[i] = apply_epilogue((in[i] - mean) * factor, &e);
    if (has_mean) means[means0 + row] = mean;
    if (has_factor) factors[factors0 + row] = factor;
  }
}

typedef struct {
  int kind, kept, reduced, padding;
  long lines, count, chunk;     // count: elements of a line
  long kept_dim[8], kept_stride[8];
  long reduced_dim[8], reduced_stride[8];
} Lines;

// MeanVarianceNormalization and LpNormalization. Grid: pieces of the lines. y may be x.
EVN_KERNEL void normalize_lines(global const float* x, ulong x0, global float* y, ulong y0, Lines p, Epilogue e) {
  const long first = (long)get_global_id(0) * p.chunk;
  const long last = min(first + p.chunk, p.lines);
  for (long line = first; line < last; ++line) {
    const long base = offset_of(line, p.kept, p.kept_dim, p.kept_stride);
    global const float* in = x + x0 + base;
    Sum all;
    start(&all);
    for (long i = 0; p.kind == kDeviation && i < p.count; ++i) {
      add(&all, in[offset_of(i, p.reduced, p.reduced_dim, p.reduced_stride)]);
    }
    const float mean = total(&all) / (float)p.count;
    start(&all);
    for (long i = 0; i < p.count; ++i) {
      const float d = in[offset_of(i, p.reduced, p.reduced_dim, p.reduced_stride)] - mean;
      if (p.kind == kSum1) add(&all, fabs(d));
      else add_product(&all, d, d);
    }
    const float sum = total(&all);
    const float divisor = p.kind == kDeviation ? sqrt(sum / (float)p.count) + 1e-9f : p.kind == kSum2 ? sqrt(sum) : sum;
    for (long i = 0; i < p.count; ++i) {
      const long at = offset_of(i, p.reduced, p.reduced_dim, p.reduced_stride);
      const float v = p.kind != kDeviation && divisor == 0.0f ? 0.0f : (in[at] - mean) / divisor;
      y[y0 + base + at] = apply_epilogue(v, &e);
    }
  }
}

// x seen as [outer, length, inner]: 1 at the first of the largest, or the first NaN, else 0. Grid: pieces of the lines.
EVN_KERNEL void hardmax(global const float* x, ulong x0, global float* y, ulong y0, long lines, long length, long inner, long chunk,
                        Epilogue e) {
  const long first = (long)get_global_id(0) * chunk;
  const long last = min(first + chunk, lines);
  const float one = apply_epilogue(1.0f, &e), zero = apply_epilogue(0.0f, &e);
  for (long line = first; line < last; ++line) {
    const long base = line / inner * length * inner + line % inner;
    global const float* in = x + x0 + base;
    long best = 0;
    for (long i = 1; i < length; ++i) {
      const float v = in[i * inner], top = in[best * inner];
      if (v > top || (v != v && top == top)) best = i;
    }
    for (long i = 0; i < length; ++i) y[y0 + base + i * inner] = i == best ? one : zero;
  }
}
