// Convolutions, transposed ones and pools of any geometry up to three spatial axes: slower than the kernels that know more of it, which
// come first. Weights are [group][channel][tap][padded], so that vectors run along output channels.

#include "sums.cl"

typedef struct {
  int input, output, taps, stride, dilation, pad;
  int border;   // of the input and its padding
} Axis;

typedef struct {
  Axis axis[3];
  int channels, outputs, groups;   // channels and outputs of one group
  int padded, transposed, has_bias;
} Convolution;

// Packs weights that are computed. Grid: padded outputs, taps, channels of all groups.
EVN_KERNEL void pack_weights(global const float* w, ulong w0, global float* y, ulong y0, Convolution p, long taps) {
  const long m = get_global_id(0), k = get_global_id(1), c = get_global_id(2);
  if (m >= p.padded) return;
  const long g = c / p.channels;
  const long row = p.transposed ? c * p.outputs + m : (g * p.outputs + m) * p.channels + c % p.channels;
  y[y0 + (c * taps + k) * p.padded + m] = m < p.outputs ? w[w0 + row * taps + k] : 0.0f;
}

// The input position that an output position meets under tap k, or -1.
static inline int position_of(const Axis* a, int output, int k, int transposed) {
  if (!transposed) {
    const int at = output * a->stride + k * a->dilation - a->pad;
    return at >= 0 && at < a->input ? at : -1;
  }
  const int from = output + a->pad - k * a->dilation;
  return from >= 0 && from % a->stride == 0 && from / a->stride < a->input ? from / a->stride : -1;
}

// Grid: blocks of EVN_LANES outputs of all groups, pieces of the pixels, images.
EVN_KERNEL void convolve(global const float* x, ulong x0, global const float* weights, ulong weights0, global const float* bias,
                         ulong bias0, global float* y, ulong y0, Convolution p, long pixels, long chunk, Epilogue e) {
  const int blocks = (p.outputs + EVN_LANES - 1) / EVN_LANES;
  const int g = get_global_id(0) / blocks;
  if (g >= p.groups) return;
  const int m = get_global_id(0) % blocks * EVN_LANES;
  const int count = min(p.outputs - m, EVN_LANES);
  const long image = get_global_id(2);
  const long plane = (long)p.axis[0].input * p.axis[1].input * p.axis[2].input;
  const long taps = (long)p.axis[0].taps * p.axis[1].taps * p.axis[2].taps;
  const long step = taps * p.padded;  // from channel to channel
  global const float* in = x + x0 + (image * p.groups + g) * p.channels * plane;
  global const float* w = weights + weights0 + (long)g * p.channels * step + m;
  global float* out = y + y0 + ((image * p.groups + g) * p.outputs + m) * pixels;
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) lane[i] = p.has_bias && i < count ? bias[bias0 + g * p.outputs + m + i] : 0.0f;
  const VF first = LOADV(lane);
  const long end = min((long)(get_global_id(1) + 1) * chunk, pixels);
  for (long pixel = (long)get_global_id(1) * chunk; pixel < end; ++pixel) {
    const int o2 = pixel % p.axis[2].output, o1 = pixel / p.axis[2].output % p.axis[1].output;
    const int o0 = pixel / p.axis[2].output / p.axis[1].output;
    Sums sum;
    start(&sum);
    sum.part = first;
    for (int k0 = 0, tap = 0; k0 < p.axis[0].taps; ++k0) {
      const int i0 = position_of(&p.axis[0], o0, k0, p.transposed);
      for (int k1 = 0; k1 < p.axis[1].taps; ++k1) {
        const int i1 = position_of(&p.axis[1], o1, k1, p.transposed);
        for (int k2 = 0; k2 < p.axis[2].taps; ++k2, ++tap) {
          const int i2 = position_of(&p.axis[2], o2, k2, p.transposed);
          if (i0 < 0 || i1 < 0 || i2 < 0) continue;
          global const float* from = in + ((long)i0 * p.axis[1].input + i1) * p.axis[2].input + i2;
          global const float* factors = w + (long)tap * p.padded;
          for (int c = 0; c < p.channels; ++c) add_product(&sum, (VF)from[c * plane], LOADV(factors + c * step));
        }
      }
    }
    STOREV(apply_epilogue(total(&sum), &e), lane);
    for (int i = 0; i < count; ++i) out[i * pixels + pixel] = lane[i];
  }
}

// ---- pools ----

enum { kMaximum, kAverage, kNorm };

typedef struct {
  Axis axis[3];
  int kind, include_pad, column_major, has_indices;
  float p;
  int padding;
} Pool;

// Taps along one axis: the first tap inside the input, how many there are, and how many of the padded input.
typedef struct {
  int first, count, padded;
} Taps;

// The taps before `limit` of a window that begins at `start`. Sums of positions, pads and dilations may exceed 32 bits.
static inline long taps_below(const Axis* a, long start, long limit) {
  return start >= limit ? 0 : min((limit - start + a->dilation - 1) / a->dilation, (long)a->taps);
}

static inline Taps taps_of(const Axis* a, int output) {
  const long start = (long)output * a->stride - a->pad;
  const long skip = start < 0 ? (-start + a->dilation - 1) / a->dilation : 0;
  const long count = max(taps_below(a, start, a->input) - skip, 0L);
  Taps t = {count > 0 ? (int)(start + skip * a->dilation) : 0, (int)count, (int)taps_below(a, start, a->border)};
  return t;
}

// Grid: pieces of the pixels of a plane, planes.
EVN_KERNEL void pool_window(global const float* x, ulong x0, global float* y, ulong y0, global float* indices, ulong indices0, Pool p,
                            long pixels, long chunk, Epilogue e) {
  const long plane = get_global_id(1);
  const long size = (long)p.axis[0].input * p.axis[1].input * p.axis[2].input;
  global const float* in = x + x0 + plane * size;
  const long end = min((long)(get_global_id(0) + 1) * chunk, pixels);
  for (long pixel = (long)get_global_id(0) * chunk; pixel < end; ++pixel) {
    const Taps t2 = taps_of(&p.axis[2], pixel % p.axis[2].output);
    const Taps t1 = taps_of(&p.axis[1], pixel / p.axis[2].output % p.axis[1].output);
    const Taps t0 = taps_of(&p.axis[0], pixel / p.axis[2].output / p.axis[1].output);
    float r = -INFINITY;
    long found = -1;
    Sum all;
    start(&all);
    for (int k0 = 0; k0 < t0.count; ++k0) {
      for (int k1 = 0; k1 < t1.count; ++k1) {
        for (int k2 = 0; k2 < t2.count; ++k2) {
          const long i0 = t0.first + k0 * p.axis[0].dilation, i1 = t1.first + k1 * p.axis[1].dilation;
          const long i2 = t2.first + k2 * p.axis[2].dilation;
          const float v = in[(i0 * p.axis[1].input + i1) * p.axis[2].input + i2];
          if (p.kind == kAverage) add(&all, v);
          if (p.kind == kNorm) add(&all, p.p == 1.0f ? fabs(v) : p.p == 2.0f ? v * v : pow((VF)fabs(v), (VF)p.p).s0);
          if (p.kind != kMaximum || (found >= 0 && !(v > r || (v != v && r == r)))) continue;
          r = v;
          found = plane * size + (p.column_major ? i0 + p.axis[0].input * (i1 + p.axis[1].input * i2)
                                                 : (i0 * p.axis[1].input + i1) * p.axis[2].input + i2);
        }
      }
    }
    if (p.kind != kMaximum) r = total(&all);
    if (p.kind == kAverage) {
      const float count = p.include_pad ? (float)t0.padded * t1.padded * t2.padded : (float)t0.count * t1.count * t2.count;
      r = count == 0.0f ? 0.0f : r / count;
    }
    if (p.kind == kNorm && p.p != 1.0f) r = p.p == 2.0f ? sqrt(r) : pow((VF)r, (VF)(1.0f / p.p)).s0;
    y[y0 + plane * pixels + pixel] = apply_epilogue(r, &e);
    if (p.has_indices) ((global long*)(indices + indices0))[plane * pixels + pixel] = found;
  }
}
