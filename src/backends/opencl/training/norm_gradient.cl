// BatchNormalization by the moments of the batch, its derivative, and that of LayerNormalization. A group of work items (one on a CPU)
// makes a channel or a row; sums are made in the same order whatever else runs.

#include "sums.cl"

#if EVN_LOCAL > 1
// The sum of what the items of a group have; each item gets it.
static inline float group_sum(float v, local float* part) {
  const int item = get_local_id(0);
  part[item] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int step = EVN_LOCAL / 2; step > 0; step /= 2) {
    if (item < step) part[item] += part[item + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float sum = part[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
// Calls ONE for the elements of a line of n from `base` on, at `at`, that are this item's.
#define EVN_EACH_OF_LINE(base, n, VECTOR, ONE)             \
  for (long i = get_local_id(0); i < (n); i += EVN_LOCAL) { \
    const long at = (base) + i;                            \
    ONE                                                    \
  }
#define EVN_EACH_OF_CHANNEL(VECTOR, ONE)                                                         \
  for (long j = get_local_id(0); j < p.samples * p.inner; j += EVN_LOCAL) {                      \
    const long at = (j / p.inner * p.channels + channel) * p.inner + j % p.inner;                \
    ONE                                                                                          \
  }
#else
#define group_sum(v, part) (v)
// VECTOR for the vectors of a line, and ONE for what is left.
#define EVN_EACH_OF_LINE(base, n, VECTOR, ONE)               \
  {                                                          \
    long i = 0;                                              \
    for (; i + EVN_LANES <= (n); i += EVN_LANES) {           \
      const long at = (base) + i;                            \
      VECTOR                                                 \
    }                                                        \
    for (; i < (n); ++i) {                                   \
      const long at = (base) + i;                            \
      ONE                                                    \
    }                                                        \
  }
#define EVN_EACH_OF_CHANNEL(VECTOR, ONE)                                                   \
  for (long s = 0; s < p.samples; ++s)                                                     \
    EVN_EACH_OF_LINE((s * p.channels + channel) * p.inner, p.inner, VECTOR, ONE)
#endif

// Partial sum of a work item: vectors, and the remaining elements.
typedef struct {
  Sums of_vectors;
  Sum of_elements;
} Both;
static inline void clear(Both* s) {
  start(&s->of_vectors);
  start(&s->of_elements);
}
static inline float both(Both* s) { return total(&s->of_elements) + sum_of_lanes(total(&s->of_vectors)); }

typedef struct {
  long samples, channels, inner;
  float epsilon, momentum;
  int trains;          // else mean and variance are numbers that are given
  int wanted;          // bit i: output i
  int has_moments;     // mean and variance are given
  int padding;
} Batch;

#define EVN_MOMENTS                                                                       \
  const float count = (float)(p.samples * p.inner);                                       \
  Both sum;                                                                               \
  clear(&sum);                                                                            \
  EVN_EACH_OF_CHANNEL(add(&sum.of_vectors, LOADV(x + at));, add(&sum.of_elements, x[at]);) \
  mean = group_sum(both(&sum), part) / count;                                             \
  clear(&sum);                                                                            \
  EVN_EACH_OF_CHANNEL(const VF v = LOADV(x + at) - mean; add_product(&sum.of_vectors, v, v); \
                      , const float v = x[at] - mean; add_product(&sum.of_elements, v, v);) \
  variance = group_sum(both(&sum), part) / count;

// y may be x, and moved statistics where they were. Grid: a group for each channel.
EVN_KERNEL void batch_norm_training(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* bias,
                                    ulong bias0, global const float* means, ulong means0, global const float* variances,
                                    ulong variances0, global float* y, ulong y0, global float* new_mean, ulong new_mean0,
                                    global float* new_variance, ulong new_variance0, global float* batch_mean, ulong batch_mean0,
                                    global float* batch_variance, ulong batch_variance0, Batch p, Epilogue e) {
  local float part[EVN_LOCAL];
  const long channel = get_group_id(0);
  float mean, variance;
  x += x0;
  y += y0;
  EVN_MOMENTS
  if (p.wanted & 1) {
    const float factor = scale[scale0 + channel] / sqrt(variance + p.epsilon), offset = bias[bias0 + channel];
    EVN_EACH_OF_CHANNEL(STOREV(apply_epilogue(fma(LOADV(x + at) - mean, (VF)factor, (VF)offset), &e), y + at);
                        , y[at] = apply_epilogue(fma(x[at] - mean, factor, offset), &e);)
  }
  if (get_local_id(0) != 0) return;
  const float kept = p.momentum, taken = 1.0f - p.momentum;
  if (p.wanted & 2) new_mean[new_mean0 + channel] = fma(kept, means[means0 + channel], taken * mean);
  if (p.wanted & 4) new_variance[new_variance0 + channel] = fma(kept, variances[variances0 + channel], taken * variance);
  if (p.wanted & 8) batch_mean[batch_mean0 + channel] = mean;
  if (p.wanted & 16) batch_variance[batch_variance0 + channel] = variance;
}

// dx may be x or dy. Grid: a group for each channel.
EVN_KERNEL void batch_norm_gradient(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* dy,
                                    ulong dy0, global const float* means, ulong means0, global const float* variances, ulong variances0,
                                    global float* dx, ulong dx0, global float* dscale, ulong dscale0, global float* dbias, ulong dbias0,
                                    Batch p) {
  local float part[EVN_LOCAL];
  const long channel = get_group_id(0);
  float mean, variance;
  x += x0;
  dy += dy0;
  dx += dx0;
  if (p.has_moments) {
    mean = means[means0 + channel];
    variance = variances[variances0 + channel];
  } else {
    EVN_MOMENTS
  }
  const float n = (float)(p.samples * p.inner), inverse = 1.0f / sqrt(variance + p.epsilon);
  Both all, along;
  clear(&all);
  clear(&along);
  EVN_EACH_OF_CHANNEL(const VF g = LOADV(dy + at); add(&all.of_vectors, g); add_product(&along.of_vectors, g, LOADV(x + at) - mean);
                      , const float g = dy[at]; add(&all.of_elements, g); add_product(&along.of_elements, g, x[at] - mean);)
  const float sum_of_dy = group_sum(both(&all), part);
  const float product = group_sum(both(&along), part);
  if (p.wanted & 1) {
    const float a = scale[scale0 + channel] * inverse;
    const float b = p.trains ? inverse * inverse * product / n : 0.0f, c = p.trains ? sum_of_dy / n : 0.0f;
    EVN_EACH_OF_CHANNEL(STOREV(a * (LOADV(dy + at) - c - b * (LOADV(x + at) - mean)), dx + at);
                        , dx[at] = a * (dy[at] - c - b * (x[at] - mean));)
  }
  if (get_local_id(0) != 0) return;
  if (p.wanted & 2) dscale[dscale0 + channel] = product * inverse;
  if (p.wanted & 4) dbias[dbias0 + channel] = sum_of_dy;
}

// dx, and each row's mean and inverse deviation for what follows. Grid: a group for each row; on a CPU a work item for `chunk` rows.
EVN_KERNEL void layer_norm_rows(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* dy, ulong dy0,
                                global float* dx, ulong dx0, global float* moments, ulong moments0, long rows, long length, long chunk,
                                float epsilon, int has_dx) {
  local float part[EVN_LOCAL];
  const float n = (float)length;
  scale += scale0;
#if EVN_LOCAL > 1  // PoCL does not translate barriers in this loop
  const long row = get_group_id(0);
#else
  const long first = (long)get_group_id(0) * chunk, last = min(first + chunk, rows);
  for (long row = first; row < last; ++row)
#endif
  {
    global const float* from = x + x0 + row * length;
    global const float* g = dy + dy0 + row * length;
    global float* to = dx + dx0 + row * length;
    Both sum, more;
    clear(&sum);
    clear(&more);
    EVN_EACH_OF_LINE(0, length, add(&sum.of_vectors, LOADV(from + at));, add(&sum.of_elements, from[at]);)
    const float mean = group_sum(both(&sum), part) / n;
    clear(&sum);
    EVN_EACH_OF_LINE(0, length, const VF v = LOADV(from + at) - mean; add_product(&sum.of_vectors, v, v);
                     , const float v = from[at] - mean; add_product(&sum.of_elements, v, v);)
    const float inverse = 1.0f / sqrt(group_sum(both(&sum), part) / n + epsilon);
    if (get_local_id(0) == 0) {
      moments[moments0 + 2 * row] = mean;
      moments[moments0 + 2 * row + 1] = inverse;
    }
    clear(&sum);
    EVN_EACH_OF_LINE(0, length, const VF v = LOADV(g + at) * LOADV(scale + at); add(&sum.of_vectors, v);
                     add_product(&more.of_vectors, v, (LOADV(from + at) - mean) * inverse);
                     , const float v = g[at] * scale[at]; add(&sum.of_elements, v);
                     add_product(&more.of_elements, v, (from[at] - mean) * inverse);)
    const float plain = group_sum(both(&sum), part) / n;
    const float along = group_sum(both(&more), part) / n;
    if (has_dx) {
      EVN_EACH_OF_LINE(0, length,
                       STOREV((LOADV(g + at) * LOADV(scale + at) - plain - (LOADV(from + at) - mean) * (inverse * along)) * inverse, to + at);
                       , to[at] = (g[at] * scale[at] - plain - (from[at] - mean) * (inverse * along)) * inverse;)
    }
  }
}

static inline VF load_n(global const float* p, long left) {
  if (left >= EVN_LANES) return LOADV(p);
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = i < left ? p[i] : 0.0f;
  return LOADV(lane);
}

// dscale and dbias of some rows, one behind the other. Grid: vectors of columns, parts of the rows.
EVN_KERNEL void layer_norm_columns(global const float* x, ulong x0, global const float* dy, ulong dy0, global const float* moments,
                                   ulong moments0, global float* sums, ulong sums0, long rows, long length, long chunk) {
  const long column = (long)get_global_id(0) * EVN_LANES, left = length - column;
  if (left <= 0) return;
  const long first = (long)get_global_id(1) * chunk, last = min(first + chunk, rows);
  Sums of_scale, of_bias;
  start(&of_scale);
  start(&of_bias);
  for (long row = first; row < last; ++row) {
    const VF g = load_n(dy + dy0 + row * length + column, left);
    const VF v = load_n(x + x0 + row * length + column, left) - moments[moments0 + 2 * row];
    add_product(&of_scale, g, v * moments[moments0 + 2 * row + 1]);
    add(&of_bias, g);
  }
  global float* to = sums + sums0 + (long)get_global_id(1) * 2 * length + column;
  store_lanes(total(&of_scale), to, 0, (int)min(left, (long)EVN_LANES));
  store_lanes(total(&of_bias), to + length, 0, (int)min(left, (long)EVN_LANES));
}

// The parts in their order. Grid: vectors of columns.
EVN_KERNEL void layer_norm_finish(global const float* sums, ulong sums0, global float* dscale, ulong dscale0, global float* dbias,
                                  ulong dbias0, long length, long parts, int has_dscale, int has_dbias) {
  const long column = (long)get_global_id(0) * EVN_LANES, left = length - column;
  if (left <= 0) return;
  VF of_scale = (VF)0.0f, of_bias = (VF)0.0f;
  for (long i = 0; i < parts; ++i) {
    of_scale += load_n(sums + sums0 + i * 2 * length + column, left);
    of_bias += load_n(sums + sums0 + (i * 2 + 1) * length + column, left);
  }
  if (has_dscale) store_lanes(of_scale, dscale + dscale0 + column, 0, (int)min(left, (long)EVN_LANES));
  if (has_dbias) store_lanes(of_bias, dbias + dbias0 + column, 0, (int)min(left, (long)EVN_LANES));
}
