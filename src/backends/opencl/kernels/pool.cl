// Pools over planes of one or two axes, and the mean over a whole plane.

#include "sums.cl"

// Grid: planes. Four vectors of partial sums, added up in a fixed order.
EVN_KERNEL void global_average(global const float* x, ulong x0, global float* y, ulong y0, long planes, long elements, Epilogue e) {
  const long plane = get_global_id(0);
  if (plane >= planes) return;
  global const float* in = x + x0 + plane * elements;
  Sums all;
  start(&all);
  long i = 0;
  while (i + 4 * EVN_LANES <= elements) {
    const long end = min(elements, i + 4 * EVN_LANES * EVN_CHAIN);
    VF s0 = (VF)0.0f, s1 = (VF)0.0f, s2 = (VF)0.0f, s3 = (VF)0.0f;
    for (; i + 4 * EVN_LANES <= end; i += 4 * EVN_LANES) {
      s0 += LOADV(in + i);
      s1 += LOADV(in + i + EVN_LANES);
      s2 += LOADV(in + i + 2 * EVN_LANES);
      s3 += LOADV(in + i + 3 * EVN_LANES);
    }
    all.part += (s0 + s1) + (s2 + s3);
    end_chain(&all);
  }
  float sum = sum_of_lanes(total(&all));
  for (; i < elements; ++i) sum += in[i];
  y[y0 + plane] = apply_epilogue(sum / (float)elements, &e);
}

static inline float larger(float a, float b) { return a != a || a > b ? a : b; }

// Grid: planes. NaN anywhere gives NaN.
EVN_KERNEL void global_maximum(global const float* x, ulong x0, global float* y, ulong y0, long planes, long elements, Epilogue e) {
  const long plane = get_global_id(0);
  if (plane >= planes) return;
  global const float* in = x + x0 + plane * elements;
  VF top = (VF)-INFINITY;
  long i = 0;
  for (; i + EVN_LANES <= elements; i += EVN_LANES) {
    const VF v = LOADV(in + i);
    top = top != top || top > v ? top : v;
  }
  float lane[EVN_LANES];
  STOREV(top, lane);
  float r = lane[0];
  for (int l = 1; l < EVN_LANES; ++l) r = larger(r, lane[l]);
  for (; i < elements; ++i) r = larger(r, in[i]);
  y[y0 + plane] = apply_epilogue(r, &e);
}

typedef struct {
  int in_h, in_w;
  int out_h, out_w;
  int kernel_h, kernel_w;
  int stride_h, stride_w;
  int dilation_h, dilation_w;
  int pad_h, pad_w;        // at the beginning
  int border_h, border_w;  // first position that lies beyond the input and its pad at the end
  int include_pad;         // the mean counts pads
  int maximum;             // else the mean
  int piece;               // of an output row, one work item's
} Pool;

// Lanes whose window lies inside a row that reads every position (stride 1).
static inline VF pool_vector(global const float* in, int top, int left, const Pool* p) {
  VF r = (VF)(p->maximum ? -INFINITY : 0.0f);
  for (int ky = 0; ky < p->kernel_h; ++ky) {
    const int iy = top + ky * p->dilation_h;
    if (iy < 0 || iy >= p->in_h) continue;
    for (int kx = 0; kx < p->kernel_w; ++kx) {
      const VF v = LOADV(in + (long)iy * p->in_w + left + kx * p->dilation_w);
      r = p->maximum ? (v > r || v != v ? v : r) : r + v;
    }
  }
  return r;
}

// W outputs whose windows are two apart and lie inside a row, with reads of pairs: of 2 * W elements from each even tap on.
#define EVN_DEFINE_POOL_PAIRS(W)                                                                           \
  static inline void pool_pairs_##W(global const float* in, int top, int left, float count, global float* out, \
                                    const Pool* p, const Epilogue* e) {                                    \
    typedef EVN_CAT(float, W) V;                                                                           \
    V r = (V)(p->maximum ? -INFINITY : 0.0f);                                                              \
    for (int ky = 0; ky < p->kernel_h; ++ky) {                                                             \
      const int iy = top + ky * p->dilation_h;                                                             \
      if (iy < 0 || iy >= p->in_h) continue;                                                               \
      for (int kx = 0; kx < p->kernel_w; kx += 2) {                                                        \
        global const float* at = in + (long)iy * p->in_w + left + kx;                                      \
        const V low = EVN_CAT(vload, W)(0, at), high = EVN_CAT(vload, W)(0, at + W);                       \
        V v = (V)(low.even, high.even);                                                                    \
        r = p->maximum ? (v > r || v != v ? v : r) : r + v;                                                \
        if (kx + 1 == p->kernel_w) continue;                                                               \
        v = (V)(low.odd, high.odd);                                                                        \
        r = p->maximum ? (v > r || v != v ? v : r) : r + v;                                                \
      }                                                                                                    \
    }                                                                                                      \
    if (!p->maximum) r /= count;                                                                           \
    EVN_CAT(vstore, W)(r, 0, out);                                                                         \
    for (int i = 0; e->count != 0 && i < W; ++i) out[i] = apply_epilogue(out[i], e);                       \
  }
EVN_DEFINE_POOL_PAIRS(8)
EVN_DEFINE_POOL_PAIRS(4)

static inline int counted(int begin, int kernel_size, int dilation, int low, int high) {
  int n = 0;
  for (int k = 0; k < kernel_size; ++k) n += begin + k * dilation >= low && begin + k * dilation < high;
  return n;
}

static inline float pool_one(global const float* in, int top, int left, const Pool* p) {
  float r = p->maximum ? -INFINITY : 0.0f;
  for (int ky = 0; ky < p->kernel_h; ++ky) {
    const int iy = top + ky * p->dilation_h;
    if (iy < 0 || iy >= p->in_h) continue;
    for (int kx = 0; kx < p->kernel_w; ++kx) {
      const int ix = left + kx * p->dilation_w;
      if (ix < 0 || ix >= p->in_w) continue;
      const float v = in[(long)iy * p->in_w + ix];
      r = p->maximum ? (v > r || v != v ? v : r) : r + v;
    }
  }
  return r;
}

// Grid: pieces of output rows, planes.
EVN_KERNEL void pool(global const float* x, ulong x0, global float* y, ulong y0, Pool p, Epilogue e) {
  const int pieces = (p.out_w + p.piece - 1) / p.piece;
  const int row = get_global_id(0) / pieces;
  if (row >= p.out_h) return;
  const int begin = get_global_id(0) % pieces * p.piece, end = min(begin + p.piece, p.out_w);
  const long plane = get_global_id(1);
  global const float* in = x + x0 + plane * p.in_h * p.in_w;
  global float* out = y + y0 + (plane * p.out_h + row) * p.out_w;
  const int top = row * p.stride_h - p.pad_h;
  const int rows = p.include_pad ? counted(top, p.kernel_h, p.dilation_h, INT_MIN, p.border_h)
                                 : counted(top, p.kernel_h, p.dilation_h, 0, p.in_h);
  const int reach = (p.kernel_w - 1) * p.dilation_w;
  for (int ox = begin; ox < end;) {
    const int left = ox * p.stride_w - p.pad_w;
    if (p.stride_w == 1 && left >= 0 && left + EVN_LANES + reach <= p.in_w && ox + EVN_LANES <= end) {
      VF r = pool_vector(in, top, left, &p);
      if (!p.maximum) r /= (float)max(rows * p.kernel_w, 1);  // 0 of a window in the padding
      STOREV(apply_epilogue(r, &e), out + ox);
      ox += EVN_LANES;
      continue;
    }
    if (p.stride_w == 2 && p.dilation_w == 1 && left >= 0) {
      const int width = ox + 8 <= end ? 8 : 4;
      if (ox + width <= end && left + (p.kernel_w - 1) / 2 * 2 + 2 * width <= p.in_w) {
        const float count = (float)max(rows * p.kernel_w, 1);
        if (width == 8) pool_pairs_8(in, top, left, count, out + ox, &p, &e);
        else pool_pairs_4(in, top, left, count, out + ox, &p, &e);
        ox += width;
        continue;
      }
    }
    float r = pool_one(in, top, left, &p);
    if (!p.maximum) {
      const int columns = p.include_pad ? counted(left, p.kernel_w, p.dilation_w, INT_MIN, p.border_w)
                                        : counted(left, p.kernel_w, p.dilation_w, 0, p.in_w);
      r /= (float)max(rows * columns, 1);
    }
    out[ox++] = apply_epilogue(r, &e);
  }
}
