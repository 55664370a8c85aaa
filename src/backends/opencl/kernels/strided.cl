// Copies between strided views, for elements of 1, 2, 4 and 8 bytes, and fills.

typedef struct {
  long rank;       // outer axes
  long inner;      // elements of the innermost axis
  long rows;       // product of the outer axes
  long chunk;      // elements of a row of one work item, a multiple of EVN_LANES
  long row_chunk;  // rows of one work item
  long x_start, y_start;
  long x_step;     // along the innermost axis; it is 1 in y
  long dim[8];     // outer axes, the first varies slowest
  long x_stride[8];
  long y_stride[8];
} DeviceCopy;

static inline void locate(const DeviceCopy* p, long row, long* x_at, long* y_at) {
  *x_at = p->x_start;
  *y_at = p->y_start;
  for (int i = (int)p->rank - 1; i >= 0; --i) {
    const long position = row % p->dim[i];
    row /= p->dim[i];
    *x_at += position * p->x_stride[i];
    *y_at += position * p->y_stride[i];
  }
}

static inline void copy_row(global const float* x, long step, global float* y, long begin, long end, const Epilogue* e) {
  long i = begin;
  if (step == 1) {
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(LOADV(x + i), e), y + i);
  } else if (step == 0) {
    const VF v = apply_epilogue((VF)x[0], e);
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(v, y + i);
  } else {
    for (; i + EVN_LANES <= end; i += EVN_LANES) {
      float lane[EVN_LANES];
      for (int l = 0; l < EVN_LANES; ++l) lane[l] = x[(i + l) * step];
      STOREV(apply_epilogue(LOADV(lane), e), y + i);
    }
  }
  for (; i < end; ++i) y[i] = apply_epilogue(x[i * step], e);
}

// Grid of all copies: pieces of rows, groups of rows.
EVN_KERNEL void copy_4(global const float* x, ulong x0, global float* y, ulong y0, DeviceCopy p, Epilogue e) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  for (long row = first; row < last; ++row) {
    long x_at, y_at;
    locate(&p, row, &x_at, &y_at);
    copy_row(x + (x0 + x_at), p.x_step, y + (y0 + y_at), begin, end, &e);
  }
}

// Up to 8 arrays side by side in the rows of y. `pieces`: where in the first axis of the grid those of each begin, EVN_LANES elements to a
// piece. Grid: pieces of all, rows.
typedef struct {
  long pitch, start;  // of y's rows, and where in them the first array goes
  long pieces[9], length[8], at[8];  // at: behind `start`
} Join;

EVN_KERNEL void join_4(global const float* x0, ulong b0, global const float* x1, ulong b1, global const float* x2, ulong b2,
                       global const float* x3, ulong b3, global const float* x4, ulong b4, global const float* x5, ulong b5,
                       global const float* x6, ulong b6, global const float* x7, ulong b7, global float* y, ulong y0, Join p, Epilogue e) {
  const long piece = get_global_id(0), row = get_global_id(1);
  if (piece >= p.pieces[8]) return;
  int part = 0;
  while (piece >= p.pieces[part + 1]) ++part;
  global const float* x = x0 + b0;
  if (part == 1) x = x1 + b1;
  if (part == 2) x = x2 + b2;
  if (part == 3) x = x3 + b3;
  if (part == 4) x = x4 + b4;
  if (part == 5) x = x5 + b5;
  if (part == 6) x = x6 + b6;
  if (part == 7) x = x7 + b7;
  const long begin = (piece - p.pieces[part]) * EVN_LANES;
  copy_row(x + row * p.length[part], 1, y + y0 + row * p.pitch + p.start + p.at[part], begin, min(begin + EVN_LANES, p.length[part]), &e);
}

#define EVN_DEFINE_COPY(NAME, T)                                                                                                \
  EVN_KERNEL void NAME(global const float* x, ulong x0, global float* y, ulong y0, DeviceCopy p) {                             \
    const long begin = (long)get_global_id(0) * p.chunk;                                                                        \
    const long end = min(begin + p.chunk, p.inner);                                                                             \
    const long first = (long)get_global_id(1) * p.row_chunk;                                                                    \
    const long last = min(first + p.row_chunk, p.rows);                                                                         \
    for (long row = first; row < last; ++row) {                                                                                 \
      long x_at, y_at;                                                                                                          \
      locate(&p, row, &x_at, &y_at);                                                                                            \
      global const T* from = (global const T*)(x + x0) + x_at;                                                                  \
      global T* to = (global T*)(y + y0) + y_at;                                                                                \
      long i = begin;                                                                                                           \
      if (p.x_step == 1) {                                                                                                      \
        for (; i + EVN_LANES <= end; i += EVN_LANES) EVN_CAT(vstore, EVN_LANES)(EVN_CAT(vload, EVN_LANES)(0, from + i), 0, to + i); \
      }                                                                                                                         \
      for (; i < end; ++i) to[i] = from[i * p.x_step];                                                                          \
    }                                                                                                                           \
  }
EVN_DEFINE_COPY(copy_1, uchar)
EVN_DEFINE_COPY(copy_2, ushort)
EVN_DEFINE_COPY(copy_8, ulong)

// Rotates the bits of the index of a square of elements, seen as a list, by one. As many times as a row's number has bits, this
// transposes.
static inline void rotate_bits(const VF* v, VF* w) {
#pragma unroll
  for (int i = 0; i < EVN_LANES / 2; ++i) {
    w[2 * i].even = v[i].lo;
    w[2 * i].odd = v[i + EVN_LANES / 2].lo;
    w[2 * i + 1].even = v[i].hi;
    w[2 * i + 1].odd = v[i + EVN_LANES / 2].hi;
  }
}

// A copy of 4-byte elements whose outer axis number `rank` (the last of dim) has x stride 1: squares of EVN_LANES by EVN_LANES are read
// along that axis and written along the innermost one. Grid: squares of that axis, pieces of rows, products of the other axes.
EVN_KERNEL void transpose_4(global const float* x, ulong x0, global float* y, ulong y0, DeviceCopy p, Epilogue e) {
  const long across = p.dim[p.rank];
  const long r0 = (long)get_global_id(0) * EVN_LANES;
  if (r0 >= across) return;
  const long begin = (long)get_global_id(1) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long pitch = p.y_stride[p.rank];
  long x_at, y_at;
  locate(&p, (long)get_global_id(2), &x_at, &y_at);
  global const float* in = x + (x0 + x_at + r0);
  global float* out = y + (y0 + y_at + r0 * pitch);
  const int lines = (int)min(across - r0, (long)EVN_LANES);
  long c = begin;
  if (lines == EVN_LANES) {
    for (; c + EVN_LANES <= end; c += EVN_LANES) {
      VF v[EVN_LANES], w[EVN_LANES];
#pragma unroll
      for (int i = 0; i < EVN_LANES; ++i) v[i] = LOADV(in + (c + i) * p.x_step);
#pragma unroll
      for (int size = 1; size < EVN_LANES; size *= 2) {
        rotate_bits(v, w);
#pragma unroll
        for (int i = 0; i < EVN_LANES; ++i) v[i] = w[i];
      }
#pragma unroll
      for (int r = 0; r < EVN_LANES; ++r) STOREV(apply_epilogue(v[r], &e), out + r * pitch + c);
    }
  }
  for (; c < end; ++c) {
    for (int r = 0; r < lines; ++r) out[r * pitch + c] = apply_epilogue(in[c * p.x_step + r], &e);
  }
}

// Elements of `width` bytes, all of them the one at `value`, or zeros where there is none. Grid: pieces.
EVN_KERNEL void fill(global const float* value, ulong value0, global float* y, ulong y0, long n, long chunk, int width, int has_value,
                     Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  global const float* from = value + value0;
  global float* to = y + y0;
  if (width == 4) {
    const VF v = apply_epilogue((VF)(has_value ? from[0] : 0.0f), &e);
    long i = begin;
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(v, to + i);
    for (; i < end; ++i) to[i] = v.s0;
  } else if (width == 8) {
    const ulong v = has_value ? *(global const ulong*)from : 0;
    for (long i = begin; i < end; ++i) ((global ulong*)to)[i] = v;
  } else if (width == 2) {
    const ushort v = has_value ? *(global const ushort*)from : 0;
    for (long i = begin; i < end; ++i) ((global ushort*)to)[i] = v;
  } else {
    const uchar v = has_value ? *(global const uchar*)from : 0;
    for (long i = begin; i < end; ++i) ((global uchar*)to)[i] = v;
  }
}

// Fills with the value's bytes in `bits`.
EVN_KERNEL void fill_bits(global float* y, ulong y0, long n, long chunk, int width, ulong bits, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  global float* to = y + y0;
  if (width == 4) {
    const VF v = apply_epilogue((VF)as_float((uint)bits), &e);
    long i = begin;
    for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(v, to + i);
    for (; i < end; ++i) to[i] = v.s0;
  } else if (width == 8) {
    for (long i = begin; i < end; ++i) ((global ulong*)to)[i] = bits;
  } else if (width == 2) {
    for (long i = begin; i < end; ++i) ((global ushort*)to)[i] = (ushort)bits;
  } else {
    for (long i = begin; i < end; ++i) ((global uchar*)to)[i] = (uchar)bits;
  }
}

// Pads that repeat elements: position p of axis i reads source(p - before[i]) of x.
typedef struct {
  int rank, mode;   // 1 reflect, 2 edge, 3 wrap
  long before[8];
  long x_dim[8], x_stride[8], y_dim[8];
} Repeat;

static inline long repeat_source(int mode, long p, long n) {
  if (p >= 0 && p < n) return p;
  if (mode == 2) return clamp(p, 0L, n - 1);
  if (mode == 3) return (p % n + n) % n;
  if (n == 1) return 0;
  const long period = 2 * (n - 1);
  const long q = (p % period + period) % period;
  return q < n ? q : period - q;
}

static inline long repeat_from(const Repeat* p, long at) {
  long from = 0;
  for (int i = p->rank - 1; i >= 0; --i) {
    const long position = at % p->y_dim[i];
    at /= p->y_dim[i];
    from += repeat_source(p->mode, position - p->before[i], p->x_dim[i]) * p->x_stride[i];
  }
  return from;
}

// Grid: pieces of y.
EVN_KERNEL void pad_repeat(global const float* x, ulong x0, global float* y, ulong y0, long n, long chunk, int width, Repeat p,
                           Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  global const float* from = x + x0;
  global float* to = y + y0;
  for (long i = begin; i < end; ++i) {
    const long at = repeat_from(&p, i);
    if (width == 4) to[i] = apply_epilogue(from[at], &e);
    else if (width == 8) ((global ulong*)to)[i] = ((global const ulong*)from)[at];
    else if (width == 2) ((global ushort*)to)[i] = ((global const ushort*)from)[at];
    else ((global uchar*)to)[i] = ((global const uchar*)from)[at];
  }
}

// Rows of `inner` elements of x [outer, length, inner] by indices that count from the end when negative; those outside read the
// nearest row. Grid: pieces of a row, indices, outer.
EVN_KERNEL void gather(global const float* x, ulong x0, global const float* indices, ulong indices0, global float* y, ulong y0,
                       long length, long inner, long count, long chunk, int width, int wide, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, inner);
  const long number = get_global_id(1);
  const long outer = get_global_id(2);
  global const int* list = (global const int*)(indices + indices0);
  long index = wide ? ((global const long*)list)[number] : (long)list[number];
  index = clamp(index < 0 ? index + length : index, 0L, length - 1);
  const long from = (outer * length + index) * inner;
  const long to = (outer * count + number) * inner;
  global const float* in = x + x0;
  global float* out = y + y0;
  if (width == 4) {
    copy_row(in + from, 1, out + to, begin, end, &e);
  } else if (width == 8) {
    for (long i = begin; i < end; ++i) ((global ulong*)out)[to + i] = ((global const ulong*)in)[from + i];
  } else if (width == 2) {
    for (long i = begin; i < end; ++i) ((global ushort*)out)[to + i] = ((global const ushort*)in)[from + i];
  } else {
    for (long i = begin; i < end; ++i) ((global uchar*)out)[to + i] = ((global const uchar*)in)[from + i];
  }
}
