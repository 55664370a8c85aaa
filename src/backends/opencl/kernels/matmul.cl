// Products of matrices. The right-hand one is in panels, [columns / 32][depth][32] with zeros beyond the last column; the left-hand one
// is read where it lies. A work item makes a tile of 8 rows or of one, by one or two vectors of columns: chains of EVN_CHAIN fused
// multiply-adds to each element, in the order of the depth, whatever the tile. With EVN_HALF both sides are rounded to halves, the
// right-hand one in memory; products and sums are float32.

#if EVN_LANES == 8
#define EVN_TILE 1  // vectors: 16 registers hold 8 sums and no more
#else
#define EVN_TILE 2
#endif
#define EVN_COLUMNS (EVN_TILE * EVN_LANES)
#define EVN_PANEL 32
#define EVN_ROWS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define EVN_CHAIN 512  // longer ones round more

#ifdef EVN_HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define RIGHT half
#define LOADR(p) EVN_CAT(vload_half, EVN_LANES)(0, (p))
#define LEFT(x) ((float)(half)(x))
#else
#define RIGHT float
#define LOADR(p) LOADV(p)
#define LEFT(x) (x)
#endif

typedef struct {
  long m, n, k;
  long a_row, a_step;        // strides of A along rows and along the depth
  long panels;               // floats of one packed matrix
  long c_row, c_column;      // strides of C, 0 where it is broadcast
  float alpha, beta;
  int has_c;
  int rows_first;            // the grid's first dimension counts blocks of rows, not of columns
  int rank;                  // batch axes
  long batch[6], a_stride[6], b_stride[6];  // b_stride in matrices
} Product;

// Writes panels, EVN_DEPTH rows of one at a time, so that a transposed matrix is read in runs. Grid: panels, groups of rows of the
// depth, matrices.
#define EVN_DEPTH 16
EVN_KERNEL void pack_panels(global const float* b, ulong b0, global float* packed, ulong packed0, long n, long k, long row,
                            long column) {
  const long first = (long)get_global_id(0) * EVN_PANEL;
  if (first >= n) return;
  const long begin = (long)get_global_id(1) * EVN_DEPTH;
  const long end = min(begin + EVN_DEPTH, k);
  const long matrix = get_global_id(2);
  const long panels = (n + EVN_PANEL - 1) / EVN_PANEL * EVN_PANEL * k;
  global const float* from = b + b0 + matrix * n * k + first * column;
  global float* to = packed + packed0 + matrix * panels + first * k;
  if (column == 1 && first + EVN_PANEL <= n) {
    for (long d = begin; d < end; ++d) {
      for (int i = 0; i < EVN_PANEL; i += EVN_LANES) STOREV(LOADV(from + d * row + i), to + d * EVN_PANEL + i);
    }
    return;
  }
  for (int i = 0; i < EVN_PANEL; ++i) {
    const bool inside = first + i < n;
    for (long d = begin; d < end; ++d) to[d * EVN_PANEL + i] = inside ? from[d * row + i * column] : 0.0f;
  }
}

static inline void finish(VF* sums, int rows, long row, long column, global const float* c, global float* y, const Product* p,
                          const Epilogue* e) {
  for (int r = 0; r < rows; ++r) {
    for (int u = 0; u < EVN_TILE; ++u) {
      VF v = sums[r * EVN_TILE + u];
      if (p->alpha != 1.0f) v *= p->alpha;
      if (p->has_c) {
        const long at = column + u * EVN_LANES;
        global const float* from = c + (row + r) * p->c_row;
        if (p->c_column == 0) {
          v = fma((VF)p->beta, (VF)from[0], v);
        } else if (at + EVN_LANES <= p->n) {
          v = fma((VF)p->beta, LOADV(from + at), v);
        } else {
          float lane[EVN_LANES];
          for (int i = 0; i < EVN_LANES; ++i) lane[i] = at + i < p->n ? from[at + i] : 0.0f;
          v = fma((VF)p->beta, LOADV(lane), v);
        }
      }
      sums[r * EVN_TILE + u] = v;
    }
  }
  apply_to_block(sums, rows * EVN_TILE, e);
  for (int r = 0; r < rows; ++r) {
    for (int u = 0; u < EVN_TILE; ++u) {
      store_lanes(sums[r * EVN_TILE + u], y + (row + r) * p->n + column + u * EVN_LANES, 0,
                  (int)min(p->n - column - u * EVN_LANES, (long)EVN_LANES));
    }
  }
}

// Adds chains to sums, and what rounding takes to rests. Infinities and NaN have no rest.
static inline void add_chains(VF* sums, VF* rests, const VF* chains, int count) {
  for (int i = 0; i < count; ++i) {
    const VF next = sums[i] + chains[i], taken = next - sums[i];
    const VF lost = (sums[i] - (next - taken)) + (chains[i] - taken);
    rests[i] += fabs(lost) < (VF)INFINITY ? lost : (VF)0.0f;
    sums[i] = next;
  }
}

#define EVN_FIND_TILE(ROWS)                                                                         \
  const long gx = get_global_id(0), gy = get_global_id(1);                                          \
  const long row = (p.rows_first ? gx : gy) * ROWS;                                                 \
  const long column = (p.rows_first ? gy : gx) * EVN_COLUMNS;                                       \
  if (row >= p.m || column >= p.n) return;                                                          \
  const long product = get_global_id(2);                                                            \
  long rest = product, a_at = (long)a0, b_at = 0;                                                   \
  for (int i = p.rank - 1; i >= 0; --i) {                                                           \
    const long position = rest % p.batch[i];                                                        \
    rest /= p.batch[i];                                                                             \
    a_at += position * p.a_stride[i];                                                               \
    b_at += position * p.b_stride[i];                                                               \
  }                                                                                                 \
  global const float* src = a + a_at + row * p.a_row;                                               \
  global const RIGHT* w = (global const RIGHT*)(packed + packed0) + b_at * p.panels + column / EVN_PANEL * EVN_PANEL * p.k + column % EVN_PANEL; \
  global float* out = y + y0 + product * p.m * p.n;

// Grid: blocks of 8 rows and of EVN_COLUMNS columns, in either order; products.
EVN_KERNEL void multiply_8(global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0,
                           global float* y, ulong y0, Product p, Epilogue e) {
  EVN_FIND_TILE(8)
  const int rows = (int)min(p.m - row, 8L);
  VF sums[8 * EVN_TILE], chains[8 * EVN_TILE], rests[8 * EVN_TILE];
  for (int i = 0; i < 8 * EVN_TILE; ++i) sums[i] = rests[i] = (VF)0.0f;
  // Rows beyond the last read the last.
#define EVN_START(r)       \
  VF s##r = (VF)0.0f;      \
  global const float* row##r = src + min(r, rows - 1) * p.a_row;
#define EVN_RESTART(r) s##r = (VF)0.0f;
  EVN_ROWS(EVN_START)
#if EVN_TILE == 2
#define EVN_START_HIGH(r) VF t##r = (VF)0.0f;
#define EVN_RESTART_HIGH(r) t##r = (VF)0.0f;
  EVN_ROWS(EVN_START_HIGH)
#define EVN_STEP(r)                        \
  {                                        \
    const VF v = (VF)LEFT(row##r[at]);       \
    s##r = fma(v, b_low, s##r);            \
    t##r = fma(v, b_high, t##r);           \
  }
#define EVN_KEEP(r)        \
  chains[2 * r] = s##r;    \
  chains[2 * r + 1] = t##r;
#else
#define EVN_STEP(r) s##r = fma((VF)LEFT(row##r[at]), b_low, s##r);
#define EVN_KEEP(r) chains[r] = s##r;
#endif
  long at = 0;
  for (long begin = 0; begin < p.k; begin += EVN_CHAIN) {
    const long end = min(p.k, begin + EVN_CHAIN);
    for (long i = begin; i < end; ++i) {
      const VF b_low = LOADR(w);
#if EVN_TILE == 2
      const VF b_high = LOADR(w + EVN_LANES);
#endif
      EVN_ROWS(EVN_STEP)
      w += EVN_PANEL;
      at += p.a_step;
    }
    EVN_ROWS(EVN_KEEP)
    add_chains(sums, rests, chains, 8 * EVN_TILE);
    EVN_ROWS(EVN_RESTART)
#if EVN_TILE == 2
    EVN_ROWS(EVN_RESTART_HIGH)
#endif
  }
  if (p.k > EVN_CHAIN) {
    for (int i = 0; i < 8 * EVN_TILE; ++i) sums[i] += rests[i];
  }
  finish(sums, rows, row, column, c + c0, out, &p, &e);
}

// The same, row by row.
EVN_KERNEL void multiply_1(global const float* a, ulong a0, global const float* packed, ulong packed0, global const float* c, ulong c0,
                           global float* y, ulong y0, Product p, Epilogue e) {
  EVN_FIND_TILE(1)
  VF sums[EVN_TILE], chains[EVN_TILE], rests[EVN_TILE];
  for (int i = 0; i < EVN_TILE; ++i) sums[i] = rests[i] = (VF)0.0f;
  for (long begin = 0; begin < p.k; begin += EVN_CHAIN) {
    const long end = min(p.k, begin + EVN_CHAIN);
    VF s = (VF)0.0f;
#if EVN_TILE == 2
    VF t = (VF)0.0f;
#endif
    for (long i = begin; i < end; ++i) {
      const VF v = (VF)LEFT(src[i * p.a_step]);
      s = fma(v, LOADR(w), s);
#if EVN_TILE == 2
      t = fma(v, LOADR(w + EVN_LANES), t);
#endif
      w += EVN_PANEL;
    }
    chains[0] = s;
#if EVN_TILE == 2
    chains[1] = t;
#endif
    add_chains(sums, rests, chains, EVN_TILE);
  }
  if (p.k > EVN_CHAIN) {
    for (int i = 0; i < EVN_TILE; ++i) sums[i] += rests[i];
  }
  finish(sums, 1, row, column, c + c0, out, &p, &e);
}

// y = y + beta * C, then the epilogue; for products that something else has made. Grid: vectors of columns, rows.
EVN_KERNEL void finish_product(global const float* c, ulong c0, global float* y, ulong y0, Product p, Epilogue e) {
  const long column = (long)get_global_id(0) * EVN_LANES, row = get_global_id(1);
  if (column >= p.n) return;
  global float* at = y + y0 + row * p.n + column;
  global const float* from = c + c0 + row * p.c_row + column * p.c_column;
  const bool inside = column + EVN_LANES <= p.n;
  const long lanes = min(p.n - column, (long)EVN_LANES);
  float lane[EVN_LANES], addend[EVN_LANES];
  if (!inside) {
    for (int i = 0; i < EVN_LANES; ++i) {
      lane[i] = i < lanes ? at[i] : 0.0f;
      addend[i] = p.has_c && i < lanes ? from[i * p.c_column] : 0.0f;
    }
  }
  VF v = inside ? LOADV(at) : LOADV(lane);
  if (p.has_c) v = fma((VF)p.beta, p.c_column == 0 ? (VF)from[0] : inside ? LOADV(from) : LOADV(addend), v);
  apply_to_block(&v, 1, &e);
  store_lanes(v, at, 0, (int)lanes);
}
