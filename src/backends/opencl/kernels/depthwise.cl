// Depthwise convolutions for CPU devices: one input channel to each group; weights as the model has them. `limit`: elements of the input.

// As in conv.cl.
typedef struct {
  int channels, outputs, groups, blocks;
  int in_h, in_w, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int padded_h, phase_w, row_chunk;
  int has_bias, pixels_first;
} Conv;

static inline VF load_stride(global const float* x, const int stride) {
  const VF low = LOADV(x);
  if (stride == 1) return low;
  const VF high = LOADV(x + EVN_LANES);
  return (VF)(low.even, high.even);
}

// Lanes that begin at element `at`, which is column `column` of its row; what lies outside the row is 0.
static inline VF load_edge(global const float* x, long at, int column, int width, const int stride, long limit) {
  if (stride <= 2 && at >= 0 && at + stride * EVN_LANES <= limit) {
    const VI columns = column + stride * EVN_IOTA;
    return (columns >= 0 && columns < width) ? load_stride(x + at, stride) : (VF)0.0f;
  }
  float lane[EVN_LANES];
  for (int i = 0; i < EVN_LANES; ++i) {
    const long c = column + (long)stride * i;
    lane[i] = c >= 0 && c < width ? x[at + (long)stride * i] : 0.0f;
  }
  return LOADV(lane);
}

// The sum over the taps of one vector of an output row, whose first pixel reads from column `column` on.
static inline VF depthwise_taps(global const float* x, long in_row, int top, int column, global const float* w, float bias,
                                const Conv* p, const int stride, long limit) {
  const int reach = (p->kernel_w - 1) * p->dilation_w;
  const long last = in_row + (long)(top + (p->kernel_h - 1) * p->dilation_h) * p->in_w + column + reach;
  const bool inside = stride <= 2 && column >= 0 && column + (EVN_LANES - 1) * stride + reach < p->in_w &&
                      last + stride * EVN_LANES <= limit;
  VF sum = (VF)bias;
  for (int ky = 0; ky < p->kernel_h; ++ky) {
    const int iy = top + ky * p->dilation_h;
    if (iy < 0 || iy >= p->in_h) continue;
    const long at = in_row + (long)iy * p->in_w + column;
    global const float* taps = w + ky * p->kernel_w;
    if (inside) {
      for (int kx = 0; kx < p->kernel_w; ++kx) sum = fma((VF)taps[kx], load_stride(x + at + kx * p->dilation_w, stride), sum);
    } else {
      for (int kx = 0; kx < p->kernel_w; ++kx) {
        const int shift = kx * p->dilation_w;
        sum = fma((VF)taps[kx], load_edge(x, at + shift, column + shift, p->in_w, stride, limit), sum);
      }
    }
  }
  return sum;
}

// `room`: elements from the row's beginning to the end of what this work item writes. Lanes behind the row are in the next one, which is
// written later.
static inline void depthwise_row(global const float* x, long in_row, int row, global const float* w, float bias, global float* y,
                                 int room, const Conv* p, const int stride, long limit, const Epilogue* e) {
  const int top = row * p->stride_h - p->pad_h;
  for (int ox = 0; ox < p->out_w; ox += EVN_LANES) {
    const VF sum = apply_epilogue(depthwise_taps(x, in_row, top, ox * stride - p->pad_w, w, bias, p, stride, limit), e);
    if (ox + EVN_LANES <= room) STOREV(sum, y + ox);
    else store_lanes(sum, y + ox, 0, p->out_w - ox);
  }
}

// Grid: groups of row_chunk output rows, output channels, images.
EVN_KERNEL void conv_depthwise(global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias,
                               ulong b0, global float* y, ulong y0, Conv p, long limit, Epilogue e) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const int channel = get_global_id(1);
  const long image = get_global_id(2);
  const long in_row = (image * p.groups + channel / p.outputs) * p.in_h * p.in_w;
  global const float* w = weights + w0 + (long)channel * p.kernel_h * p.kernel_w;
  const float start = p.has_bias ? bias[b0 + channel] : 0.0f;
  global float* out = y + y0 + (image * p.groups * p.outputs + channel) * p.out_h * p.out_w;
  for (int row = begin; row < end; ++row) {
    global float* to = out + (long)row * p.out_w;
    const int room = (end - row) * p.out_w;
    if (p.stride_w == 1) {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, 1, limit, &e);
    } else if (p.stride_w == 2) {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, 2, limit, &e);
    } else {
      depthwise_row(x + x0, in_row, row, w, start, to, room, &p, p.stride_w, limit, &e);
    }
  }
}

// ---- depthwise with 3 x 3 taps side by side and a stride of 1 or 2 both ways: down a column of vectors, so that what is read of a row
// serves all the rows of the output that want it, and which lanes are outside the row is seen once ----

#define EVN_INLINE __attribute__((always_inline)) static inline  // vectors stay in registers

typedef struct {
  VF v0, v1, v2;
} Taps;

// What the three taps of a row read from `from` on.
EVN_INLINE Taps load_taps(global const float* from, const int stride, const bool inside, VI has0, VI has1, VI has2) {
  Taps t;
  if (stride == 1) {
    t.v0 = LOADV(from);
    t.v1 = LOADV(from + 1);
  } else {
    const VF low = LOADV(from), high = LOADV(from + EVN_LANES);
    t.v0 = (VF)(low.even, high.even);
    t.v1 = (VF)(low.odd, high.odd);
  }
  t.v2 = load_stride(from + 2, stride);
  if (inside) return t;
  t.v0 = has0 ? t.v0 : (VF)0.0f;
  t.v1 = has1 ? t.v1 : (VF)0.0f;
  t.v2 = has2 ? t.v2 : (VF)0.0f;
  return t;
}

EVN_INLINE VF add_taps(VF sum, const Taps* t, const VF* w) { return fma(w[2], t->v2, fma(w[1], t->v1, fma(w[0], t->v0, sum))); }

// Not inlined into each of the places that store: the steps are a switch of all kinds.
__attribute__((noinline)) static VF apply_steps(VF v, const Epilogue* e) { return apply_epilogue(v, e); }

// `left`: rows that this work item has yet to write, with this one. Where rows are shorter than a vector, lanes behind a row are in the
// next ones, which are written later.
EVN_INLINE void store_column(VF sum, global float* to, int left, int out_w, const Bounds* bounds, const Epilogue* e) {
  sum = bounds->all ? clamp_to(sum, bounds->low, bounds->high) : apply_steps(sum, e);
  if (out_w >= EVN_LANES || left * out_w >= EVN_LANES) STOREV(sum, to);
  else store_lanes(sum, to, 0, out_w);
}

// Rows `begin` to `end` of one vector of pixels, which reads from column `column` on; what it reads lies in the input. `image`: the
// channel's row 0 at that column.
EVN_INLINE void depthwise_column(global const float* image, int begin, int end, int column, global const float* taps, float bias,
                                    global float* y, const Conv* p, const int stride, const bool inside, const Epilogue* e) {
  const VI c0 = column + stride * EVN_IOTA, c1 = c0 + 1, c2 = c0 + 2;
  const VI has0 = c0 >= 0 && c0 < p->in_w, has1 = c1 >= 0 && c1 < p->in_w, has2 = c2 >= 0 && c2 < p->in_w;
  const Bounds bounds = bounds_of(e);
  VF w[9];
  for (int i = 0; i < 9; ++i) w[i] = (VF)taps[i];
  if (stride == 1) {  // a row of the input is the bottom one of `row`, the middle one of the next, the top one of that behind it
    VF middle = (VF)bias, top = (VF)bias;
    for (int row = begin - 2; row < end; ++row) {
      const int iy = row + 2 - p->pad_h;
      VF done = middle, next = top, fresh = (VF)bias;
      if (iy >= 0 && iy < p->in_h) {
        const Taps t = load_taps(image + (long)iy * p->in_w, 1, inside, has0, has1, has2);
        done = add_taps(done, &t, w + 6);
        next = add_taps(next, &t, w + 3);
        fresh = add_taps(fresh, &t, w);
      }
      if (row >= begin) store_column(done, y + (long)row * p->out_w, end - row, p->out_w, &bounds, e);
      middle = next;
      top = fresh;
    }
    return;
  }
  Taps t;  // of the row that is the bottom one of an output row and the top one of the next
  for (int row = begin; row < end; ++row) {
    const int iy = row * 2 - p->pad_h;
    VF sum = (VF)bias;
    if (iy >= 0 && iy < p->in_h) {
      if (row == begin) t = load_taps(image + (long)iy * p->in_w, 2, inside, has0, has1, has2);
      sum = add_taps(sum, &t, w);
    }
    if (iy + 1 >= 0 && iy + 1 < p->in_h) {
      t = load_taps(image + (long)(iy + 1) * p->in_w, 2, inside, has0, has1, has2);
      sum = add_taps(sum, &t, w + 3);
    }
    if (iy + 2 >= 0 && iy + 2 < p->in_h) {
      t = load_taps(image + (long)(iy + 2) * p->in_w, 2, inside, has0, has1, has2);
      sum = add_taps(sum, &t, w + 6);
    }
    store_column(sum, y + (long)row * p->out_w, end - row, p->out_w, &bounds, e);
  }
}

// Grid: groups of row_chunk output rows, output channels, images. The last vector of a row that is longer than one ends with the row.
EVN_KERNEL void conv_depthwise_3x3(global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias,
                                   ulong b0, global float* y, ulong y0, Conv p, long limit, Epilogue e) {
  const int begin = get_global_id(0) * p.row_chunk;
  const int end = min(begin + p.row_chunk, p.out_h);
  const int channel = get_global_id(1);
  const long number = get_global_id(2);
  const long in_row = (number * p.groups + channel / p.outputs) * p.in_h * p.in_w;
  const int stride = p.stride_w;
  const long first = in_row + (long)max(begin * stride - p.pad_h, 0) * p.in_w;
  const long last = in_row + (long)min((end - 1) * stride - p.pad_h + 2, p.in_h - 1) * p.in_w + 2 + stride * EVN_LANES;
  global const float* w = weights + w0 + (long)channel * 9;
  const float start = p.has_bias ? bias[b0 + channel] : 0.0f;
  global float* out = y + y0 + (number * p.groups * p.outputs + channel) * p.out_h * p.out_w;
  for (int ox = 0; ox < p.out_w; ox += EVN_LANES) {
    const int at = p.out_w >= EVN_LANES ? min(ox, p.out_w - EVN_LANES) : 0;
    const int column = at * stride - p.pad_w;
    const bool inside = column >= 0 && column + (EVN_LANES - 1) * stride + 2 < p.in_w;
    global const float* image = x + x0 + in_row + column;
    if (first + column < 0 || last + column > limit) {
      const Bounds none = {false, 0.0f, 0.0f};
      for (int row = begin; row < end; ++row) {
        const VF sum = depthwise_taps(x + x0, in_row, row * stride - p.pad_h, column, w, start, &p, stride, limit);
        store_column(sum, out + (long)row * p.out_w + at, end - row, p.out_w, &none, &e);
      }
    } else if (stride == 1) {
      if (inside) depthwise_column(image, begin, end, column, w, start, out + at, &p, 1, true, &e);
      else depthwise_column(image, begin, end, column, w, start, out + at, &p, 1, false, &e);
    } else {
      if (inside) depthwise_column(image, begin, end, column, w, start, out + at, &p, 2, true, &e);
      else depthwise_column(image, begin, end, column, w, start, out + at, &p, 2, false, &e);
    }
  }
}
