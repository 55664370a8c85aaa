// The derivatives of MaxPool and AveragePool over one or two axes. Sums of windows that meet are made in the order of the windows.

#include "sums.cl"

typedef struct {
  int in_h, in_w;
  int out_h, out_w;
  int kernel_h, kernel_w;
  int stride_h, stride_w;
  int dilation_h, dilation_w;
  int pad_h, pad_w;        // at the beginning
  int border_h, border_w;  // first position that lies beyond the input and its pad at the end
  int include_pad;         // the mean counts pads
  int piece;               // of an input row, one work item's
} Pool;

// Whether MaxPool takes v after `best`: of equal ones the first; a NaN.
static inline int beats(float v, float best) { return v > best || (v != v && best == best); }

// Where the window takes its largest element from; -1: all of it is padding.
static inline int place_of_largest(global const float* x, int oy, int ox, const Pool* p) {
  int at = -1;
  float best = 0.0f;
  for (int ky = 0; ky < p->kernel_h; ++ky) {
    const int iy = oy * p->stride_h - p->pad_h + ky * p->dilation_h;
    if (iy < 0 || iy >= p->in_h) continue;
    for (int kx = 0; kx < p->kernel_w; ++kx) {
      const int ix = ox * p->stride_w - p->pad_w + kx * p->dilation_w;
      if (ix < 0 || ix >= p->in_w) continue;
      const float v = x[(long)iy * p->in_w + ix];
      if (at >= 0 && !beats(v, best)) continue;
      best = v;
      at = iy * p->in_w + ix;
    }
  }
  return at;
}

// Windows of 2 x 2 side by side, without pads: two rows of dx of W elements of dy, from i on.
#define EVN_DEFINE_SPLIT(W)                                                                                              \
  static inline void split_##W(global const float* x, global const float* dy, global float* dx, int i, int w) {          \
    typedef EVN_CAT(float, W) V;                                                                                         \
    typedef EVN_CAT(int, W) I;                                                                                           \
    const V low = EVN_CAT(vload, W)(0, x + 2 * i), high = EVN_CAT(vload, W)(0, x + 2 * i + W);                           \
    const V low1 = EVN_CAT(vload, W)(0, x + w + 2 * i), high1 = EVN_CAT(vload, W)(0, x + w + 2 * i + W);                 \
    const V g = EVN_CAT(vload, W)(0, dy + i), none = (V)0.0f;                                                            \
    V best = (V)(low.even, high.even);                                                                                   \
    I which = (I)0;                                                                                                      \
    EVN_TRY((V)(low.odd, high.odd), 1)                                                                                   \
    EVN_TRY((V)(low1.even, high1.even), 2)                                                                               \
    EVN_TRY((V)(low1.odd, high1.odd), 3)                                                                                 \
    const V a = which == (I)0 ? g : none, b = which == (I)1 ? g : none;                                                  \
    const V c = which == (I)2 ? g : none, d = which == (I)3 ? g : none;                                                  \
    V to;                                                                                                                \
    to.even = a.lo, to.odd = b.lo;                                                                                       \
    EVN_CAT(vstore, W)(to, 0, dx + 2 * i);                                                                               \
    to.even = a.hi, to.odd = b.hi;                                                                                       \
    EVN_CAT(vstore, W)(to, 0, dx + 2 * i + W);                                                                           \
    to.even = c.lo, to.odd = d.lo;                                                                                       \
    EVN_CAT(vstore, W)(to, 0, dx + w + 2 * i);                                                                           \
    to.even = c.hi, to.odd = d.hi;                                                                                       \
    EVN_CAT(vstore, W)(to, 0, dx + w + 2 * i + W);                                                                       \
  }
#define EVN_TRY(candidate, number)                           \
  {                                                          \
    const V v = candidate;                                   \
    const I wins = v > best || (v != v && best == best);     \
    best = wins ? v : best;                                  \
    which = wins ? (I)number : which;                        \
  }
EVN_DEFINE_SPLIT(16)
EVN_DEFINE_SPLIT(8)
EVN_DEFINE_SPLIT(4)

// Elements that two vectors have are made twice.
#define EVN_SPLIT_ALL(W)                                                                            \
  {                                                                                                 \
    for (int i = 0; i + W <= n; i += W) split_##W(x, dy, dx, i, w);                                 \
    if (n % W != 0) split_##W(x, dy, dx, n - W, w);                                                 \
  }
static inline void split_row(global const float* x, global const float* dy, global float* dx, const Pool* p) {
  const int w = p->in_w, n = p->out_w;
  if (n >= 16 && EVN_LANES == 16) {
    EVN_SPLIT_ALL(16)
  } else if (n >= 8 && EVN_LANES >= 8) {
    EVN_SPLIT_ALL(8)
  } else if (n >= 4) {
    EVN_SPLIT_ALL(4)
  } else {
    for (int i = 0; i < n; ++i) {
      const int places[4] = {2 * i, 2 * i + 1, w + 2 * i, w + 2 * i + 1};
      int at = places[0];
      for (int k = 0; k < 4; ++k) {
        dx[places[k]] = 0.0f;
        if (beats(x[places[k]], x[at])) at = places[k];
      }
      dx[at] = dy[i];
    }
  }
  for (int rest = 2 * n; rest < w; ++rest) dx[rest] = dx[w + rest] = 0.0f;
}

// Window by window, for a CPU. Grid: planes.
EVN_KERNEL void max_pool_planes(global const float* x, ulong x0, global const float* dy, ulong dy0, global float* dx, ulong dx0,
                                long planes, Pool p) {
  const long plane = get_global_id(0);
  if (plane >= planes) return;
  global const float* from = x + x0 + plane * p.in_h * p.in_w;
  global const float* g = dy + dy0 + plane * p.out_h * p.out_w;
  global float* to = dx + dx0 + plane * p.in_h * p.in_w;
  if (p.kernel_h == 2 && p.kernel_w == 2 && p.stride_h == 2 && p.stride_w == 2 && p.dilation_h == 1 && p.dilation_w == 1 && p.pad_h == 0 &&
      p.pad_w == 0 && p.out_h * 2 <= p.in_h && p.out_w * 2 <= p.in_w) {
    for (int oy = 0; oy < p.out_h; ++oy) split_row(from + 2L * oy * p.in_w, g + oy * p.out_w, to + 2L * oy * p.in_w, &p);
    for (long i = 2L * p.out_h * p.in_w; i < (long)p.in_h * p.in_w; ++i) to[i] = 0.0f;
    return;
  }
  for (long i = 0; i < (long)p.in_h * p.in_w; ++i) to[i] = 0.0f;
  for (int oy = 0; oy < p.out_h; ++oy) {
    for (int ox = 0; ox < p.out_w; ++ox) {
      const int at = place_of_largest(from, oy, ox, &p);
      if (at >= 0) to[at] += g[oy * p.out_w + ox];
    }
  }
}

// Calls F(oy, ox) for the windows that row iy and column ix are in, in their order.
#define EVN_EACH_WINDOW(F)                                                                   \
  for (int ky = p.kernel_h - 1; ky >= 0; --ky) {                                             \
    const int y_at = iy + p.pad_h - ky * p.dilation_h;                                       \
    if (y_at < 0 || y_at % p.stride_h != 0 || y_at / p.stride_h >= p.out_h) continue;        \
    const int oy = y_at / p.stride_h;                                                        \
    for (int kx = p.kernel_w - 1; kx >= 0; --kx) {                                           \
      const int x_at = ix + p.pad_w - kx * p.dilation_w;                                     \
      if (x_at < 0 || x_at % p.stride_w != 0 || x_at / p.stride_w >= p.out_w) continue;      \
      const int ox = x_at / p.stride_w;                                                      \
      F                                                                                      \
    }                                                                                        \
  }

// Element by element, for a GPU. Grid: elements of a plane, planes.
EVN_KERNEL void max_pool_points(global const float* x, ulong x0, global const float* dy, ulong dy0, global float* dx, ulong dx0, Pool p) {
  const int i = get_global_id(0);
  if (i >= p.in_h * p.in_w) return;
  const int iy = i / p.in_w, ix = i % p.in_w;
  const long plane = get_global_id(1);
  global const float* from = x + x0 + plane * p.in_h * p.in_w;
  global const float* g = dy + dy0 + plane * p.out_h * p.out_w;
  Sum sum;
  start(&sum);
  EVN_EACH_WINDOW(if (place_of_largest(from, oy, ox, &p) == i) add(&sum, g[oy * p.out_w + ox]);)
  dx[dx0 + plane * p.in_h * p.in_w + i] = total(&sum);
}

static inline int counted(int begin, int kernel_size, int dilation, int low, int high) {
  int n = 0;
  for (int k = 0; k < kernel_size; ++k) n += begin + k * dilation >= low && begin + k * dilation < high;
  return n;
}

static inline float share_of(global const float* g, int oy, int ox, const Pool* p) {
  const int top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
  const int low = p->include_pad ? INT_MIN : 0;
  const int rows = counted(top, p->kernel_h, p->dilation_h, low, p->include_pad ? p->border_h : p->in_h);
  const int columns = counted(left, p->kernel_w, p->dilation_w, low, p->include_pad ? p->border_w : p->in_w);
  return g[oy * p->out_w + ox] / (float)(rows * columns);
}

// Grid: pieces of input rows, planes.
EVN_KERNEL void average_pool_points(global const float* dy, ulong dy0, global float* dx, ulong dx0, Pool p) {
  const int pieces = (p.in_w + p.piece - 1) / p.piece;
  const int iy = get_global_id(0) / pieces;
  if (iy >= p.in_h) return;
  const int begin = get_global_id(0) % pieces * p.piece, end = min(begin + p.piece, p.in_w);
  const long plane = get_global_id(1);
  global const float* g = dy + dy0 + plane * p.out_h * p.out_w;
  global float* to = dx + dx0 + (plane * p.in_h + iy) * p.in_w;
  for (int ix = begin; ix < end; ++ix) {
    Sum sum;
    start(&sum);
    EVN_EACH_WINDOW(add(&sum, share_of(g, oy, ox, &p));)
    to[ix] = total(&sum);
  }
}
