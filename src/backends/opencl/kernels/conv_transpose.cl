// Transposed convolutions whose stride is the kernel's size: every output comes from one input pixel. An output channel and a tap
// make one row of a matrix; weights are packed [blocks of 8 rows][inputs][8], taps varying faster than channels.

typedef struct {
  int channels;   // inputs
  int rows;       // outputs * kernel_h * kernel_w
  int blocks;     // blocks of 8 rows
  int in_h, in_w;
  int kernel_h, kernel_w;
  int outputs;
  int has_bias;
} Transposed;

#define EVN_ROWS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)

static inline global float* row_address(global float* y, long image, int m, int row, const Transposed* p) {
  const int taps = p->kernel_h * p->kernel_w;
  const long out_w = (long)p->in_w * p->kernel_w;
  const long channel = image * p->outputs + m / taps;
  const int tap = m % taps;
  return y + (channel * p->in_h * p->kernel_h + (long)row * p->kernel_h + tap / p->kernel_w) * out_w + tap % p->kernel_w;
}

// Lanes [skip, EVN_LANES) of one matrix row go kernel_w apart.
static inline void scatter_lanes(VF v, global float* to, int skip, int step) {
  float lane[EVN_LANES];
  STOREV(v, lane);
  for (int i = skip; i < EVN_LANES; ++i) to[i * step] = lane[i];
}

// Grid: blocks of rows, column tiles, images * input rows; in_w is at least EVN_LANES.
EVN_KERNEL void conv_transpose(global const float* x, ulong x0, global const float* weights, ulong w0, global const float* bias,
                               ulong b0, global float* y, ulong y0, Transposed p, Epilogue e) {
  const int block = get_global_id(0);
  if (block >= p.blocks) return;
  const int wanted = get_global_id(1) * EVN_LANES;
  const int column = min(wanted, p.in_w - EVN_LANES);
  const int skip = wanted - column;
  const int row = get_global_id(2) % p.in_h;
  const long image = get_global_id(2) / p.in_h;
  const long plane = (long)p.in_h * p.in_w;
  global const float* src = x + x0 + image * p.channels * plane + (long)row * p.in_w + column;
  global const float* w = weights + w0 + (long)block * 8 * p.channels;
  global const float* start = bias + b0 + block * 8;
  VF a[8];
#define EVN_START(m) a[m] = (VF)(p.has_bias ? start[m] : 0.0f);
  EVN_ROWS(EVN_START)
#undef EVN_START
  for (int c = 0; c < p.channels; ++c) {
    const VF v = LOADV(src);
#define EVN_ADD(m) a[m] = fma((VF)w[m], v, a[m]);
    EVN_ROWS(EVN_ADD)
#undef EVN_ADD
    w += 8;
    src += plane;
  }
  const int count = min(8, p.rows - block * 8);
  VF sums[8];
#define EVN_KEEP(m) sums[m] = a[m];
  EVN_ROWS(EVN_KEEP)
#undef EVN_KEEP
  apply_to_block(sums, 8, &e);
  if (p.kernel_w == 2 && skip == 0) {  // two neighbouring rows interleave
    for (int m = 0; m < count; m += 2) {
      global float* to = row_address(y + y0, image, block * 8 + m, row, &p) + 2L * column;
      VF low, high;
      low.even = sums[m].lo;
      low.odd = sums[m + 1].lo;
      high.even = sums[m].hi;
      high.odd = sums[m + 1].hi;
      STOREV(low, to);
      STOREV(high, to + EVN_LANES);
    }
    return;
  }
  for (int m = 0; m < count; ++m) {
    scatter_lanes(sums[m], row_address(y + y0, image, block * 8 + m, row, &p) + (long)column * p.kernel_w, skip, p.kernel_w);
  }
}

// The transposed convolution for narrow inputs. Grid: blocks of rows, columns, images * input rows.
EVN_KERNEL void conv_transpose_narrow(global const float* x, ulong x0, global const float* weights, ulong w0,
                                      global const float* bias, ulong b0, global float* y, ulong y0, Transposed p, Epilogue e) {
  const int block = get_global_id(0);
  if (block >= p.blocks) return;
  const int column = get_global_id(1);
  const int row = get_global_id(2) % p.in_h;
  const long image = get_global_id(2) / p.in_h;
  const long plane = (long)p.in_h * p.in_w;
  global const float* src = x + x0 + image * p.channels * plane + (long)row * p.in_w + column;
  global const float* w = weights + w0 + (long)block * 8 * p.channels;
  float8 sum = p.has_bias ? vload8(block, bias + b0) : (float8)0.0f;
  for (int c = 0; c < p.channels; ++c) sum = fma((float8)src[c * plane], vload8(c, w), sum);
  float lane[8];
  vstore8(sum, 0, lane);
  for (int m = 0; m < min(8, p.rows - block * 8); ++m) {
    row_address(y + y0, image, block * 8 + m, row, &p)[(long)column * p.kernel_w] = apply_epilogue(lane[m], &e);
  }
}
