// The derivatives of MaxPool and AveragePool over one or two axes. Sums of windows that meet are made in the order of the windows.

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

// Windows of 2 x 2 side by side, without pads: two rows of dx of one row of dy.
static inline void split_row(global const float* x, global const float* dy, global float* dx, const Pool* p) {
  const int w = p->in_w;
  int i = 0;
  for (; i + EVN_LANES <= p->out_w; i += EVN_LANES) {
    const VF low = LOADV(x + 2 * i), high = LOADV(x + 2 * i + EVN_LANES);
    const VF low1 = LOADV(x + w + 2 * i), high1 = LOADV(x + w + 2 * i + EVN_LANES);
    const VF a = (VF)(low.even, high.even), b = (VF)(low.odd, high.odd);
    const VF c = (VF)(low1.even, high1.even), d = (VF)(low1.odd, high1.odd);
    VF best = a;
    VI which = (VI)0;
#define EVN_TRY(v, number)                                   \
  {                                                          \
    const VI wins = v > best || (v != v && best == best);    \
    best = wins ? v : best;                                  \
    which = wins ? (VI)number : which;                       \
  }
    EVN_TRY(b, 1)
    EVN_TRY(c, 2)
    EVN_TRY(d, 3)
    const VF g = LOADV(dy + i);
    const VF none = (VF)0.0f;
    const VF ga = which == (VI)0 ? g : none, gb = which == (VI)1 ? g : none;
    const VF gc = which == (VI)2 ? g : none, gd = which == (VI)3 ? g : none;
    VF to;
    to.even = ga.lo, to.odd = gb.lo;
    STOREV(to, dx + 2 * i);
    to.even = ga.hi, to.odd = gb.hi;
    STOREV(to, dx + 2 * i + EVN_LANES);
    to.even = gc.lo, to.odd = gd.lo;
    STOREV(to, dx + w + 2 * i);
    to.even = gc.hi, to.odd = gd.hi;
    STOREV(to, dx + w + 2 * i + EVN_LANES);
  }
  for (; i < p->out_w; ++i) {
    float best = x[2 * i];
    int at = 2 * i;
    const int others[3] = {2 * i + 1, w + 2 * i, w + 2 * i + 1};
    for (int k = 0; k < 3; ++k) {
      if (!beats(x[others[k]], best)) continue;
      best = x[others[k]];
      at = others[k];
    }
    dx[2 * i] = dx[2 * i + 1] = dx[w + 2 * i] = dx[w + 2 * i + 1] = 0.0f;
    dx[at] = dy[i];
  }
  for (int rest = 2 * p->out_w; rest < w; ++rest) dx[rest] = dx[w + rest] = 0.0f;
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
  float sum = 0.0f;
  EVN_EACH_WINDOW(if (place_of_largest(from, oy, ox, &p) == i) sum += g[oy * p.out_w + ox];)
  dx[dx0 + plane * p.in_h * p.in_w + i] = sum;
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
    float sum = 0.0f;
    EVN_EACH_WINDOW(sum += share_of(g, oy, ox, &p);)
    to[ix] = sum;
  }
}
