// The derivative of Resize, one axis after the other: what an element of x gets is the sum over the positions that were sampled from it, in
// their order. Taps are computed as in ops/resize.h, step by step: by whole numbers where the ratio of the dims is given, else with coordinates
// that are rounded as there, as a position that falls on an element would else go to its neighbour.
#pragma OPENCL FP_CONTRACT OFF

#include "sums.cl"

typedef struct {
  int mode;         // 0 nearest, 1 linear, 2 cubic
  int coordinates;  // 0 half_pixel, 1 half_pixel_symmetric, 2 pytorch_half_pixel, 3 align_corners, 4 asymmetric, 5 tf_crop_and_resize,
                    // 6 tf_half_pixel_for_nn
  int nearest;      // 0 round_prefer_floor, 1 round_prefer_ceil, 2 floor, 3 ceil
  int antialias, exclude_outside;
  int taps;         // of a position
  int in, out;
  float cubic_a, scale, roi_begin, roi_end;
  long step, start, unit;  // coordinates are (step * position + start) / unit; unit 0: by `scale`
} Axis;

// First taps of positions that are extrapolated: in front of x and behind it.
#define EVN_IN_FRONT INT_MIN
#define EVN_BEHIND INT_MAX

static inline float coordinate_of(const Axis* a, int position) {
  const float x = (float)position, last = (float)(a->in - 1), length = a->scale * (float)a->in;
  switch (a->coordinates) {
    case 1: {
      const float adjustment = quotient((float)a->out, length);
      return (float)a->in / 2.0f * (1.0f - adjustment) + quotient(x + 0.5f, a->scale) - 0.5f;
    }
    case 2: return a->out > 1 ? quotient(x + 0.5f, a->scale) - 0.5f : 0.0f;
    case 3: return length == 1.0f || a->out == 1 ? 0.0f : quotient(x * last, length - 1.0f);
    case 4: return quotient(x, a->scale);
    case 6: return quotient(x + 0.5f, a->scale);
    case 5:
      if (a->out <= 1) return 0.5f * (a->roi_begin + a->roi_end) * last;
      return a->roi_begin * last + quotient(x * (a->roi_end - a->roi_begin) * last, (float)(a->out - 1));
    default: return quotient(x + 0.5f, a->scale) - 0.5f;
  }
}

// Coordinate below + rest. `half_sign`: the sign of the rest less 1/2.
typedef struct {
  int below, half_sign;
  float rest;
} Place;

static inline Place place_of(const Axis* a, int position) {
  Place p;
  if (a->unit > 0) {
    const long n = a->step * position + a->start;
    const long below = n / a->unit - (n % a->unit < 0 ? 1 : 0), rest = n - below * a->unit;
    p.below = (int)below;
    p.half_sign = 2 * rest < a->unit ? -1 : 2 * rest > a->unit ? 1 : 0;
    p.rest = quotient((float)rest, (float)a->unit);
    return p;
  }
  const float at = coordinate_of(a, position), down = floor(at);
  p.below = (int)down;
  p.rest = at - down;
  p.half_sign = p.rest < 0.5f ? -1 : p.rest > 0.5f ? 1 : 0;
  return p;
}

static inline int nearest_of(const Axis* a, Place p) {
  const bool up = a->nearest == 3 ? p.rest > 0.0f : a->nearest != 2 && p.half_sign >= (a->nearest == 1 ? 0 : 1);
  return clamp(p.below + (up ? 1 : 0), 0, a->in - 1);
}

static inline float weight_of(const Axis* a, Place at, float stretch, int i) {
  if (a->exclude_outside && (i < 0 || i >= a->in)) return 0.0f;
  const float d = fabs(((float)(i - at.below) - at.rest) * stretch), c = a->cubic_a;
  if (a->mode == 1) return d < 1.0f ? 1.0f - d : 0.0f;
  if (d <= 1.0f) return ((c + 2.0f) * d - (c + 3.0f)) * d * d + 1.0f;
  return d < 2.0f ? ((c * d - 5.0f * c) * d + 8.0f * c) * d - 4.0f * c : 0.0f;
}

// The first tap of each position, which may lie outside x, and the weights of all. Grid: positions.
EVN_KERNEL void axis_taps(global int* firsts, ulong firsts0, global float* weights, ulong weights0, Axis a) {
  const int position = get_global_id(0);
  if (position >= a.out) return;
  global int* first = firsts + firsts0 + position;
  global float* weight = weights + weights0 + (long)position * a.taps;
  if (a.coordinates == 5 && !(coordinate_of(&a, position) >= 0.0f && coordinate_of(&a, position) <= (float)(a.in - 1))) {
    *first = coordinate_of(&a, position) > 0.0f ? EVN_BEHIND : EVN_IN_FRONT;
    return;
  }
  const Place at = place_of(&a, position);
  if (a.mode == 0) {
    *first = nearest_of(&a, at);
    *weight = 1.0f;
    return;
  }
  const float stretch = a.antialias && a.scale < 1.0f ? a.scale : 1.0f;
  *first = at.below + 1 - a.taps / 2;
  float sum = 0.0f;
  for (int i = 0; i < a.taps; ++i) {
    weight[i] = weight_of(&a, at, stretch, *first + i);
    sum += weight[i];
  }
  if (!a.antialias && !a.exclude_outside) return;
  for (int i = 0; i < a.taps; ++i) weight[i] /= sum;
}

// First position whose tap `offset`, within x, lies at element `bound` or behind it; a.out if there is none. First taps ascend with
// the position, or descend with it if `from_end`; then positions are counted from the last one.
static inline int first_reaching(const Axis* a, global const int* firsts, bool from_end, int offset, int bound) {
  int low = 0, high = a->out;
  while (low < high) {
    const int middle = low + (high - low) / 2, first = firsts[from_end ? a->out - 1 - middle : middle];
    const bool reaches = first != EVN_IN_FRONT && (first == EVN_BEHIND || clamp(first + offset, 0, a->in - 1) >= bound);
    if (reaches) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Positions that an element is sampled for: ranges [element][begin, end]. Grid: elements.
EVN_KERNEL void axis_ranges(global const int* firsts, ulong firsts0, global int* ranges, ulong ranges0, Axis a) {
  const int i = get_global_id(0);
  if (i >= a.in) return;
  firsts += firsts0;
  const bool from_end = a.coordinates == 5 && a.roi_end < a.roi_begin;
  const int begin = first_reaching(&a, firsts, from_end, a.taps - 1, i), end = first_reaching(&a, firsts, from_end, 0, i + 1);
  ranges[ranges0 + 2L * i] = from_end ? a.out - end : begin;
  ranges[ranges0 + 2L * i + 1] = from_end ? a.out - begin : end;
}

// The weight of element i in a position: those of taps outside x are of the element at the border.
static inline float share_of(const Axis* a, global const int* firsts, global const float* weights, int position, int i) {
  const int first = firsts[position];
  weights += (long)position * a->taps;
  if (i > 0 && i < a->in - 1) return i >= first && i < first + a->taps ? weights[i - first] : 0.0f;
  float sum = 0.0f;
  for (int t = 0; t < a->taps; ++t) sum += clamp(first + t, 0, a->in - 1) == i ? weights[t] : 0.0f;
  return sum;
}

// dx [outer, in, inner] of dy [outer, out, inner]. Grid: pieces of inner, groups of rows of dx.
EVN_KERNEL void resize_axis_gradient(global const float* dy, ulong dy0, global const int* firsts, ulong firsts0, global const float* weights,
                                     ulong weights0, global const int* ranges, ulong ranges0, global float* dx, ulong dx0, long rows,
                                     long inner, long chunk, long row_chunk, Axis a) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, inner);
  const long last = min(((long)get_global_id(1) + 1) * row_chunk, rows);
  firsts += firsts0;
  weights += weights0;
  for (long row = (long)get_global_id(1) * row_chunk; row < last; ++row) {
    const int i = (int)(row % a.in), from = ranges[ranges0 + 2L * i], to = ranges[ranges0 + 2L * i + 1];
    global const float* g = dy + dy0 + row / a.in * a.out * inner;
    global float* y = dx + dx0 + row * inner;
    long k = begin;
    for (; k + EVN_LANES <= end; k += EVN_LANES) {
      Sums sum;
      start(&sum);
      for (int p = from; p < to; ++p) add(&sum, share_of(&a, firsts, weights, p, i) * LOADV(g + p * inner + k));
      STOREV(total(&sum), y + k);
    }
    for (; k < end; ++k) {
      Sum sum;
      start(&sum);
      for (int p = from; p < to; ++p) add(&sum, share_of(&a, firsts, weights, p, i) * g[p * inner + k]);
      y[k] = total(&sum);
    }
  }
}
