// Rows for GPUs, a work group to each: reductions, Softmax, LayerNormalization and global pools. The order in which elements are added up
// depends on the device and the length of a row alone.

#include "sums.cl"

#define EVN_GROUP 128
#define EVN_GROUP_KERNEL kernel __attribute__((reqd_work_group_size(EVN_GROUP, 1, 1)))

enum { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

static inline float start_of(int op) { return op == kMax ? -INFINITY : op == kMin ? INFINITY : op == kProd ? 1.0f : 0.0f; }

// NaN on either side gives NaN.
static inline float fold(float a, float x, int op) {
  switch (op) {
    case kMax: return a != a || a > x ? a : x;
    case kMin: return a != a || a < x ? a : x;
    case kProd: return a * x;
    case kL1: return a + fabs(x);
    case kL2:
    case kSumSquare: return fma(x, x, a);
    default: return a + x;
  }
}

#if defined(EVN_SUBGROUPS) && (defined(__opencl_c_subgroups) || defined(cl_khr_subgroups))
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
#define EVN_HAS_SUBGROUPS
// What a sub-group's items have, without a barrier. Built-in functions may lose NaN.
static inline float fold_subgroup(float v, int op) {
  if (op == kSum) return sub_group_reduce_add(v);
  const float r = op == kMax ? sub_group_reduce_max(v) : sub_group_reduce_min(v);
  return sub_group_any(v != v) ? NAN : r;
}
#endif

// What the group's items have; all of them get the result. By sub-groups, where the device has these, else as a tree.
static inline float fold_group(float v, int op, local float* parts) {
  const int item = get_local_id(0), plain = op == kL1 || op == kL2 || op == kSumSquare || op == kMean ? kSum : op;
#ifdef EVN_HAS_SUBGROUPS
  if (plain != kProd) {
    v = fold_subgroup(v, plain);
    barrier(CLK_LOCAL_MEM_FENCE);  // the last result was read
    if (get_sub_group_local_id() == 0) parts[get_sub_group_id()] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = parts[0];
    for (uint i = 1; i < get_num_sub_groups(); ++i) v = fold(v, parts[i], plain);
    return v;
  }
#endif
  barrier(CLK_LOCAL_MEM_FENCE);  // the last result was read
  parts[item] = v;
  for (int half_ = EVN_GROUP / 2; half_ > 0; half_ /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < half_) parts[item] = fold(parts[item], parts[item + half_], plain);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return parts[0];
}

// Contribution of a work item to the sum of a row.
static inline void take(Sum* s, float x, int op) {
  if (op == kMax || op == kMin || op == kProd) {
    s->sum = fold(s->sum, x, op);
  } else if (op == kL2 || op == kSumSquare) {
    add_product(s, x, x);
  } else {
    add(s, op == kL1 ? fabs(x) : x);
  }
}

static inline float taken(Sum* s, int op) { return op == kMax || op == kMin || op == kProd ? s->sum : total(s); }

static inline float fold_row(global const float* x, long n, int op, local float* parts) {
  Sum r;
  start(&r);
  r.sum = start_of(op);
  for (long i = get_local_id(0); i < n; i += EVN_GROUP) take(&r, x[i], op);
  return fold_group(taken(&r, op), op, parts);
}

// The sum of (x - mean)^2.
static inline float squares_of(global const float* x, long n, float mean, local float* parts) {
  Sum s;
  start(&s);
  for (long i = get_local_id(0); i < n; i += EVN_GROUP) add_product(&s, x[i] - mean, x[i] - mean);
  return fold_group(total(&s), kSum, parts);
}

// As in rows.cl.
typedef struct {
  int op, kept, reduced, padding;
  long length, step, inner, outputs, runs, chunk;
  float count, padding2;
  long kept_dim[8], kept_stride[8];
  long reduced_dim[8], reduced_stride[8];
} Reduce;

// The innermost axis is reduced. Grid: the work items of a group for each output.
EVN_GROUP_KERNEL void reduce_rows(global const float* x, ulong x0, global float* y, ulong y0, Reduce p, Epilogue e) {
  local float parts[EVN_GROUP];
  const long output = get_group_id(0);
  global const float* in = x + x0 + offset_of(output, p.kept, p.kept_dim, p.kept_stride);
  Sum all;
  start(&all);
  all.sum = start_of(p.op);
  for (long i = get_local_id(0); i < p.runs * p.length; i += EVN_GROUP) {
    take(&all, in[offset_of(i / p.length, p.reduced, p.reduced_dim, p.reduced_stride) + i % p.length], p.op);
  }
  float r = fold_group(taken(&all, p.op), p.op, parts);
  r = p.op == kMean ? r / p.count : p.op == kL2 ? sqrt(r) : r;
  if (get_local_id(0) == 0) y[y0 + output] = apply_epilogue(r, &e);
}

// A row to each output, side by side. Grid: the work items of a group for each row.
EVN_GROUP_KERNEL void fold_rows(global const float* x, ulong x0, global float* y, ulong y0, long length, int op, Epilogue e) {
  local float parts[EVN_GROUP];
  const float r = fold_row(x + x0 + get_group_id(0) * length, length, op, parts);
  if (get_local_id(0) == 0) y[y0 + get_group_id(0)] = apply_epilogue(op == kMean ? r / (float)length : r, &e);
}

// Grid: the work items of a group for each row. y may be x.
EVN_GROUP_KERNEL void softmax_rows(global const float* x, ulong x0, global float* y, ulong y0, long length, int logarithm, Epilogue e) {
  local float parts[EVN_GROUP];
  global const float* in = x + x0 + get_group_id(0) * length;
  global float* out = y + y0 + get_group_id(0) * length;
  const float top = fold_row(in, length, kMax, parts);
  Sum all;
  start(&all);
  for (long i = get_local_id(0); i < length; i += EVN_GROUP) add(&all, exp_of(in[i] - top));
  const float sum = fold_group(total(&all), kSum, parts);
  const float shift = logarithm ? log(sum) : 0.0f;
  for (long i = get_local_id(0); i < length; i += EVN_GROUP) {
    out[i] = apply_epilogue(logarithm ? in[i] - top - shift : exp_of(in[i] - top) / sum, &e);
  }
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias. Grid: the work items of a group for each row. y may be x.
EVN_GROUP_KERNEL void layer_norm(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* bias,
                                 ulong bias0, global float* y, ulong y0, long length, float epsilon, int has_bias, Epilogue e) {
  local float parts[EVN_GROUP];
  global const float* in = x + x0 + get_group_id(0) * length;
  global float* out = y + y0 + get_group_id(0) * length;
  const float mean = fold_row(in, length, kSum, parts) / (float)length;
  const float factor = 1.0f / sqrt(squares_of(in, length, mean, parts) / (float)length + epsilon);
  for (long i = get_local_id(0); i < length; i += EVN_GROUP) {
    out[i] = apply_epilogue(fma((in[i] - mean) * factor, scale[scale0 + i], has_bias ? bias[bias0 + i] : 0.0f), &e);
  }
}

// (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon); where wanted, the mean and the factor too. Grid: the work
// items of a group for each row. y may be x.
EVN_GROUP_KERNEL void normalize_rows(global const float* x, ulong x0, global float* y, ulong y0, global float* means, ulong means0,
                                     global float* factors, ulong factors0, long length, float epsilon, int of_squares, int has_mean,
                                     int has_factor, Epilogue e) {
  local float parts[EVN_GROUP];
  const long row = get_group_id(0);
  global const float* in = x + x0 + row * length;
  global float* out = y + y0 + row * length;
  const float mean = of_squares ? 0.0f : fold_row(in, length, kSum, parts) / (float)length;
  const float factor = 1.0f / sqrt(squares_of(in, length, mean, parts) / (float)length + epsilon);
  for (long i = get_local_id(0); i < length; i += EVN_GROUP) out[i] = apply_epilogue((in[i] - mean) * factor, &e);
  if (get_local_id(0) != 0) return;
  if (has_mean) means[means0 + row] = mean;
  if (has_factor) factors[factors0 + row] = factor;
}
