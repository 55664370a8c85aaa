// Resize and Upsample of any axes, to the nearest element or linearly. Coordinates are computed as in ops/resize.h, step by step: by
// whole numbers where the ratio of the dims is given, else rounded as there, as a position that falls on an element would else go to
// its neighbour.
#pragma OPENCL FP_CONTRACT OFF

#include "sums.cl"

typedef struct {
  int rank;
  int linear;
  int coordinates;  // 0 half_pixel, 1 half_pixel_symmetric, 2 pytorch_half_pixel, 3 align_corners, 4 asymmetric, 6 tf_half_pixel_for_nn
  int nearest;      // 0 round_prefer_floor, 1 round_prefer_ceil, 2 floor, 3 ceil, 4 floor where an axis grows, else ceil
  long rows;        // of the output
  long row_chunk;   // rows of one work item
  long in[8], out[8], stride[8];
  long step[8], start[8], unit[8];  // coordinates are (step * position + start) / unit; unit 0: by `scale`
  float scale[8];
  char same[8];     // the axis is copied
  char small[8];    // all numbers of these quotients are below 2^24
} Resize;

// Two positions of the input and the weight of the second; one only where the weight is 0.
typedef struct {
  VI low, high;
  VF weight;
} Taps;

// Coordinates as floats; `rest` is what they have above the whole number below.
static inline VF rounded_place(const Resize* p, int axis, VI position, VF* rest) {
  const VF x = EVN_CAT(convert_float, EVN_LANES)(position);
  const float scale = p->scale[axis];
  const float length = scale * (float)p->in[axis];
  const float last = (float)(p->in[axis] - 1);
  VF at;
  if (p->coordinates == 3) {
    at = length == 1.0f || p->out[axis] == 1 ? (VF)0.0f : quotient(x * last, (VF)(length - 1.0f));
  } else if (p->coordinates == 4) {
    at = quotient(x, (VF)scale);
  } else if (p->coordinates == 6) {
    at = quotient(x + 0.5f, (VF)scale);
  } else if (p->coordinates == 1) {
    const float adjustment = quotient((float)p->out[axis], length);
    at = (float)p->in[axis] / 2.0f * (1.0f - adjustment) + quotient(x + 0.5f, (VF)scale) - 0.5f;
  } else {
    at = p->coordinates == 2 && p->out[axis] <= 1 ? (VF)0.0f : quotient(x + 0.5f, (VF)scale) - 0.5f;
  }
  const VF down = floor(at);
  *rest = at - down;
  return down;
}

// The whole number below each coordinate, the rest, and the rest against 1/2 by its sign.
static inline VI place_of(const Resize* p, int axis, VI position, VF* rest, VI* half_sign) {
  if (p->unit[axis] == 0) {
    const VF down = rounded_place(p, axis, position, rest);
    *half_sign = *rest < 0.5f ? (VI)-1 : *rest > 0.5f ? (VI)1 : (VI)0;
    return EVN_CAT(convert_int, EVN_LANES)(down);
  }
  if (p->small[axis]) {
    const int unit = (int)p->unit[axis];
    const VI n = (int)p->step[axis] * position + (int)p->start[axis];
    const VI below = EVN_CAT(convert_int, EVN_LANES)(floor(quotient(EVN_CAT(convert_float, EVN_LANES)(n), (VF)(float)unit)));
    const VI over = n - below * unit;
    *rest = quotient(EVN_CAT(convert_float, EVN_LANES)(over), (VF)(float)unit);
    *half_sign = 2 * over < unit ? (VI)-1 : 2 * over > unit ? (VI)1 : (VI)0;
    return below;
  }
  int at[EVN_LANES], signs[EVN_LANES];
  float over[EVN_LANES];
  EVN_CAT(vstore, EVN_LANES)(position, 0, at);
  const long unit = p->unit[axis];
  for (int l = 0; l < EVN_LANES; ++l) {
    const long n = p->step[axis] * at[l] + p->start[axis];
    const long below = n / unit - (n % unit < 0 ? 1 : 0), r = n - below * unit;
    at[l] = (int)below;
    over[l] = quotient((float)r, (float)unit);
    signs[l] = 2 * r < unit ? -1 : 2 * r > unit ? 1 : 0;
  }
  *rest = LOADV(over);
  *half_sign = EVN_CAT(vload, EVN_LANES)(0, signs);
  return EVN_CAT(vload, EVN_LANES)(0, at);
}

static inline Taps taps_of(const Resize* p, int axis, VI position) {
  Taps t;
  t.weight = (VF)0.0f;
  t.low = t.high = position;
  if (p->same[axis]) return t;
  VF rest;
  VI half_sign;
  const VI base = place_of(p, axis, position, &rest, &half_sign);
  const int top = (int)(p->in[axis] - 1);
  if (p->linear) {
    t.low = clamp(base, (VI)0, (VI)top);
    t.high = clamp(base + 1, (VI)0, (VI)top);
    t.weight = rest;
    return t;
  }
  const bool never = p->nearest == 2 || (p->nearest == 4 && p->scale[axis] >= 1.0f);
  const VI up = never ? (VI)0 : p->nearest < 2 ? (half_sign >= 1 - p->nearest ? (VI)1 : (VI)0) : (rest > 0.0f ? (VI)1 : (VI)0);
  t.low = t.high = clamp(base + up, (VI)0, (VI)top);
  return t;
}

static inline VF load_lanes(global const float* x, VI index) {
  int at[EVN_LANES];
  float lane[EVN_LANES];
  EVN_CAT(vstore, EVN_LANES)(index, 0, at);
  for (int l = 0; l < EVN_LANES; ++l) lane[l] = x[at[l]];
  return LOADV(lane);
}

// A part of a row of the input with its weight: linear rows have 2^n, n being the axes but the last that are not copied.
static inline VF sample(global const float* x, const Taps* t, float weight) {
  const VF low = load_lanes(x, t->low);
  const VF high = load_lanes(x, t->high);
  const VF v = (1.0f - t->weight) * low + (t->weight == 0.0f ? (VF)0.0f : t->weight * high);
  return weight * v;
}

// Grid: groups of rows.
EVN_KERNEL void resize(global const float* x, ulong x0, global float* y, ulong y0, Resize p, Epilogue e) {
  const long first = (long)get_global_id(0) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  const int inner = p.rank - 1;
  const int width = (int)p.out[inner];
  for (long row = first; row < last; ++row) {
    long low[8], high[8], rest = row;
    float weight[8];
    long start = 0;
    int choices = 0;  // axes with two taps
    for (int i = inner - 1; i >= 0; --i) {
      const Taps t = taps_of(&p, i, (VI)(int)(rest % p.out[i]));
      rest /= p.out[i];
      if (t.weight.s0 == 0.0f) {
        start += t.low.s0 * p.stride[i];
      } else {
        low[choices] = t.low.s0 * p.stride[i];
        high[choices] = t.high.s0 * p.stride[i];
        weight[choices++] = t.weight.s0;
      }
    }
    for (int column = 0; column < width; column += EVN_LANES) {
      const VI position = min(column + EVN_IOTA, (VI)(width - 1));
      const Taps t = taps_of(&p, inner, position);
      VF sum = (VF)0.0f;
      for (int c = 0; c < 1 << choices; ++c) {
        long at = start;
        float w = 1.0f;
        for (int k = 0; k < choices; ++k) {
          const bool second = (c >> k & 1) != 0;
          at += second ? high[k] : low[k];
          w *= second ? weight[k] : 1.0f - weight[k];
        }
        global const float* from = x + (x0 + at);
        sum = p.linear ? sum + sample(from, &t, w) : load_lanes(from, t.low);
      }
      sum = apply_epilogue(sum, &e);
      global float* to = y + y0 + row * width + column;
      if (column + EVN_LANES <= width) {
        STOREV(sum, to);
      } else {
        float lane[EVN_LANES];
        STOREV(sum, lane);
        for (int l = 0; l < width - column; ++l) to[l] = lane[l];
      }
    }
  }
}

// ---- the rest: cubic, antialias, tf_crop_and_resize ----

typedef struct {
  int rank;
  int mode;          // 0 nearest, 1 linear, 2 cubic
  int coordinates;   // as above, and 5 tf_crop_and_resize
  int nearest, antialias, exclude_outside;
  float cubic_a, extrapolation;
  long n, chunk;     // outputs, those of one work item
  int in[8], out[8], same[8];
  float scale[8], roi_begin[8], roi_end[8];
  long stride[8], step[8], start[8], unit[8];
} Sampling;

// The elements along one axis that an output position is made of: `count` from `first` on, with weights of the distance from the
// coordinate below + rest.
typedef struct {
  int first, count, below;
  float rest, stretch, sum;
} Reach;

static inline float coordinate_of(const Sampling* p, int axis, int position) {
  const float x = (float)position, scale = p->scale[axis], last = (float)(p->in[axis] - 1);
  const float length = scale * (float)p->in[axis];
  switch (p->coordinates) {
    case 1: {
      const float adjustment = quotient((float)p->out[axis], length);
      return (float)p->in[axis] / 2.0f * (1.0f - adjustment) + quotient(x + 0.5f, scale) - 0.5f;
    }
    case 2: return p->out[axis] > 1 ? quotient(x + 0.5f, scale) - 0.5f : 0.0f;
    case 3: return length == 1.0f || p->out[axis] == 1 ? 0.0f : quotient(x * last, length - 1.0f);
    case 4: return quotient(x, scale);
    case 6: return quotient(x + 0.5f, scale);
    case 5: {
      const float begin = p->roi_begin[axis], end = p->roi_end[axis];
      if (p->out[axis] <= 1) return 0.5f * (begin + end) * last;
      return begin * last + quotient(x * (end - begin) * last, (float)(p->out[axis] - 1));
    }
    default: return quotient(x + 0.5f, scale) - 0.5f;
  }
}

static inline float weight_of(const Sampling* p, const Reach* r, int axis, int i) {
  if (r->count == 1) return 1.0f;
  if (p->exclude_outside && (i < 0 || i >= p->in[axis])) return 0.0f;
  const float d = fabs(((float)(i - r->below) - r->rest) * r->stretch), a = p->cubic_a;
  if (p->mode == 1) return d < 1.0f ? 1.0f - d : 0.0f;
  if (d <= 1.0f) return ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f;
  return d < 2.0f ? ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a : 0.0f;
}

static inline Reach reach_of(const Sampling* p, int axis, int position) {
  Reach r = {position, 1, position, 0.0f, 1.0f, 1.0f};
  if (p->same[axis]) return r;
  int half_sign;  // of the rest against 1/2
  if (p->unit[axis] > 0) {
    const long unit = p->unit[axis], n = p->step[axis] * position + p->start[axis];
    const long below = n / unit - (n % unit < 0 ? 1 : 0), over = n - below * unit;
    r.below = (int)below;
    r.rest = quotient((float)over, (float)unit);
    half_sign = 2 * over < unit ? -1 : 2 * over > unit ? 1 : 0;
  } else {
    const float at = coordinate_of(p, axis, position), down = floor(at);
    if (p->coordinates == 5 && !(at >= 0.0f && at <= (float)(p->in[axis] - 1))) {
      r.count = 0;
      return r;
    }
    r.below = (int)down;
    r.rest = at - down;
    half_sign = r.rest < 0.5f ? -1 : r.rest > 0.5f ? 1 : 0;
  }
  if (p->mode == 0) {
    const bool never = p->nearest == 2 || (p->nearest == 4 && p->scale[axis] >= 1.0f);
    const bool up = !never && (p->nearest < 2 ? half_sign >= 1 - p->nearest : r.rest > 0.0f);
    r.first = clamp(r.below + (up ? 1 : 0), 0, p->in[axis] - 1);
    return r;
  }
  if (p->antialias && p->scale[axis] < 1.0f) r.stretch = p->scale[axis];
  const int before = (int)floor(quotient(-(float)p->mode, r.stretch)) + 1;
  r.first = r.below + before;
  r.count = 2 - 2 * before;
  if (!p->antialias && !p->exclude_outside) return r;
  Sum weights;
  start(&weights);
  for (int i = 0; i < r.count; ++i) add(&weights, weight_of(p, &r, axis, r.first + i));
  r.sum = total(&weights);
  return r;
}

static inline float sampled(const Sampling* p, global const float* x, long index) {
  Reach reach[8];
  int combinations = 1;
  for (int axis = p->rank - 1; axis >= 0; --axis) {
    reach[axis] = reach_of(p, axis, (int)(index % p->out[axis]));
    index /= p->out[axis];
    combinations *= reach[axis].count;
  }
  if (combinations == 0) return p->extrapolation;
  Sum sum;
  start(&sum);
  for (int c = 0; c < combinations; ++c) {
    float weight = 1.0f;
    long at = 0;
    int rest = c;
    for (int axis = p->rank - 1; axis >= 0; --axis) {
      const int i = reach[axis].first + rest % reach[axis].count;
      rest /= reach[axis].count;
      weight *= weight_of(p, &reach[axis], axis, i) / reach[axis].sum;
      at += clamp(i, 0, p->in[axis] - 1) * p->stride[axis];
    }
    if (p->mode == 0) return x[at];
    add(&sum, weight == 0.0f ? 0.0f : weight * x[at]);
  }
  return total(&sum);
}

// Grid: pieces of the outputs.
EVN_KERNEL void resample(global const float* x, ulong x0, global float* y, ulong y0, Sampling p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.n);
  for (long i = begin; i < end; ++i) y[y0 + i] = apply_epilogue(sampled(&p, x + x0, i), &e);
}
