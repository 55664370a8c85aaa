// GridSample over up to three spatial axes. Places are computed as in ops/grid_sample.cc, step by step.
#pragma OPENCL FP_CONTRACT OFF

enum { kLinearMode, kNearestMode, kCubicMode };
enum { kZeros, kBorder, kReflection };

typedef struct {
  int axes, mode, padding, align;
  long places;              // of one image
  long channels, plane;
  long chunk;               // places of one work item
  int size[3];              // the last `axes` of them
  int keeps_place;          // of cubic with the border: elements outside are replaced, and not the place
} Sample;

// Elements of one axis and their weights; an index of -1 reads 0.
typedef struct {
  int count;
  int index[4];
  float weight[4];
} Taps;

static inline float reflect(float x, float low, float high) {
  const float range = high - low;
  if (!(range > 0.0f)) return low;
  const float distance = x < low ? low - x : x > high ? x - high : 0.0f;
  if (distance == 0.0f) return x;
  const float turns = floor(distance / range);
  const float rest = distance - turns * range;
  const bool back = fmod(turns, 2.0f) == 0.0f;
  return (x < low) == back ? low + rest : high - rest;
}

static inline int padded(float i, int size, int padding, float low, float high) {
  const int last = size - 1, at = convert_int_sat(i);  // compared as whole numbers: beyond 2^24 `last` may be rounded up
  if (i >= 0.0f && at <= last) return at;
  if (padding == kZeros) return -1;
  return min(convert_int_sat(clamp(padding == kBorder ? i : reflect(i, low, high), 0.0f, (float)last)), last);
}

static inline float cubic_weight(float d) {
  const float a = -0.75f;
  if (d <= 1.0f) return ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f;
  return d < 2.0f ? ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a : 0.0f;
}

static inline Taps taps_of(float coordinate, int size, const Sample* p) {
  Taps taps;
  taps.count = 0;
  const float length = (float)size;
  float x = p->align ? (coordinate + 1.0f) / 2.0f * (length - 1.0f) : ((coordinate + 1.0f) * length - 1.0f) / 2.0f;
  const float low = p->align ? 0.0f : -0.5f, high = length - (p->align ? 1.0f : 0.5f);
  if (!(x - x == 0.0f)) {
    if (p->padding != kBorder || x != x) return taps;
    x = x < 0.0f ? 0.0f : length - 1.0f;
  }
  if (p->mode == kNearestMode) x = rint(x);
  if (x < low || x > high) {
    if (p->padding == kBorder && !p->keeps_place) x = clamp(x, 0.0f, length - 1.0f);
    if (p->padding == kReflection) x = reflect(x, low, high);
  }
  // Distances are those of the fraction: beyond 2^24 elements have no whole numbers of their own.
  const float first = p->mode == kNearestMode ? x : floor(x), fraction = x - first;
  const int before = p->mode == kCubicMode ? 1 : 0;
  taps.count = p->mode == kNearestMode ? 1 : p->mode == kLinearMode ? 2 : 4;
  for (int i = 0; i < taps.count; ++i) {
    const float distance = fabs(fraction + (float)(before - i));
    taps.index[i] = padded(first + (float)(i - before), size, p->padding, low, high);
    taps.weight[i] = p->mode == kNearestMode ? 1.0f : p->mode == kLinearMode ? 1.0f - distance : cubic_weight(distance);
  }
  return taps;
}

// Grid: pieces of the places, images.
EVN_KERNEL void grid_sample(global const float* x, ulong x0, global const float* grid, ulong grid0, global float* y, ulong y0, Sample p,
                            Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.places);
  const long image = get_global_id(1);
  for (long place = begin; place < end; ++place) {
    global const float* at = grid + grid0 + (image * p.places + place) * p.axes;
    Taps taps[3];
    for (int axis = 0; axis < 3; ++axis) {
      if (2 - axis < p.axes) {
        taps[axis] = taps_of(at[2 - axis], p.size[axis], &p);
      } else {
        taps[axis].count = 1;
        taps[axis].index[0] = 0;
        taps[axis].weight[0] = 1.0f;
      }
    }
    for (long c = 0; c < p.channels; ++c) {
      global const float* in = x + x0 + (image * p.channels + c) * p.plane;
      float sum = 0.0f;
      for (int i = 0; i < taps[0].count; ++i) {
        for (int j = 0; j < taps[1].count; ++j) {
          for (int k = 0; k < taps[2].count; ++k) {
            if (taps[0].index[i] < 0 || taps[1].index[j] < 0 || taps[2].index[k] < 0) continue;
            const long from = ((long)taps[0].index[i] * p.size[1] + taps[1].index[j]) * p.size[2] + taps[2].index[k];
            sum += taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k] * in[from];
          }
        }
      }
      y[y0 + (image * p.channels + c) * p.places + place] = apply_epilogue(sum, &e);
    }
  }
}
