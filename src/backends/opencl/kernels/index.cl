// Operators that move elements to or from places that other elements tell, or that their own position tells. Indices count from the end
// when negative; those outside, which no kernel can report, stand for the nearest element.

// One element of `width` bytes.
static inline void move_one(global float* y, long to, global const float* x, long from, int width) {
  switch (width) {
    case 1: ((global uchar*)y)[to] = ((global const uchar*)x)[from]; break;
    case 2: ((global ushort*)y)[to] = ((global const ushort*)x)[from]; break;
    case 4: ((global uint*)y)[to] = ((global const uint*)x)[from]; break;
    default: ((global ulong*)y)[to] = ((global const ulong*)x)[from]; break;
  }
}

static inline void clear_one(global float* y, long to, int width) {
  switch (width) {
    case 1: ((global uchar*)y)[to] = 0; break;
    case 2: ((global ushort*)y)[to] = 0; break;
    case 4: ((global uint*)y)[to] = 0; break;
    default: ((global ulong*)y)[to] = 0; break;
  }
}

static inline long index_at(global const float* indices, long i, long length, int wide) {
  const long index = wide ? ((global const long*)indices)[i] : (long)((global const int*)indices)[i];
  return clamp(index < 0 ? index + length : index, 0L, length - 1);
}

typedef struct {
  int rank, width;
  long dim[8];         // of what is counted, the first varies slowest
  long stride[2][8];
} View;

// Grid: pieces of the n elements of indices and y.
EVN_KERNEL void gather_elements(global const float* x, ulong x0, global const float* indices, ulong indices0, global float* y, ulong y0,
                                View v, long n, long chunk, long length, long step, int wide) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) {
    move_one(y + y0, i, x + x0, offset_of(i, v.rank, v.dim, v.stride[0]) + index_at(indices + indices0, i, length, wide) * step, v.width);
  }
}

// Where the coordinates in row `row` of the indices point to. v.dim is x's.
static inline long point_at(const View* v, global const float* indices, long row) {
  long at = 0;
  for (int k = 0; k < v->rank; ++k) at += index_at(indices, row * v->rank + k, v->dim[k], 1) * v->stride[0][k];
  return at;
}

// Blocks of x by rows of coordinates. Grid: pieces of a block, rows.
EVN_KERNEL void gather_nd(global const float* x, ulong x0, global const float* indices, ulong indices0, global float* y, ulong y0, View v,
                          long per_batch, long batch_step, long block, long chunk) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, block);
  const long row = get_global_id(1);
  const long from = row / per_batch * batch_step + point_at(&v, indices + indices0, row);
  for (long i = begin; i < end; ++i) move_one(y + y0, row * block + i, x + x0, from + i, v.width);
}

enum { kSet, kAdd, kMul, kMin, kMax };

// NaN as the reference has it: where a comparison is false, what comes later.
#define EVN_COMBINE(T)                                                 \
  {                                                                    \
    const T a = ((global T*)y)[to], b = ((global const T*)x)[from];    \
    ((global T*)y)[to] = op == kAdd ? a + b : op == kMul ? a * b : op == kMin ? (a < b ? a : b) : (a > b ? a : b); \
    break;                                                             \
  }

// type: 0 float, 1 int, 2 long.
static inline void put_one(global float* y, long to, global const float* x, long from, int width, int op, int type) {
  if (op == kSet) {
    move_one(y, to, x, from, width);
    return;
  }
  switch (type) {
    case 0: EVN_COMBINE(float)
    case 1: EVN_COMBINE(int)
    default: EVN_COMBINE(long)
  }
}

// Updates that may meet lie on one line along the axis, which a work item takes in its order. v: the other axes of the indices, with
// strides of the indices and of y. Grid: pieces of the lines.
EVN_KERNEL void scatter_elements(global const float* indices, ulong indices0, global const float* updates, ulong updates0, global float* y,
                                 ulong y0, View v, long lines, long chunk, long count, long update_step, long length, long y_step,
                                 int wide, int op, int type) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, lines);
  for (long line = begin; line < end; ++line) {
    const long from = offset_of(line, v.rank, v.dim, v.stride[0]), to = offset_of(line, v.rank, v.dim, v.stride[1]);
    for (long i = 0; i < count; ++i) {
      const long at = index_at(indices + indices0, from + i * update_step, length, wide);
      put_one(y + y0, to + at * y_step, updates + updates0, from + i * update_step, v.width, op, type);
    }
  }
}

// Blocks of updates to where rows of coordinates point; a work item takes its piece of all of them, in their order. Grid: pieces of a
// block.
EVN_KERNEL void scatter_nd(global const float* indices, ulong indices0, global const float* updates, ulong updates0, global float* y,
                           ulong y0, View v, long rows, long block, long chunk, int op, int type) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, block);
  for (long row = 0; row < rows; ++row) {
    const long to = point_at(&v, indices + indices0, row);
    for (long i = begin; i < end; ++i) put_one(y + y0, to + i, updates + updates0, row * block + i, v.width, op, type);
  }
}

// y [outer, depth, inner] has values[1] where the place along the axis is what `indices` says, else values[0]. type: 0 float, 1 int,
// 2 long. Grid: pieces.
EVN_KERNEL void one_hot(global const float* indices, ulong indices0, global const float* values, ulong values0, global float* y, ulong y0,
                        long n, long chunk, long depth, long inner, int width, int type) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  global const float* list = indices + indices0;
  for (long i = begin; i < end; ++i) {
    const long at = i / inner / depth * inner + i % inner;
    long index = type == 2 ? ((global const long*)list)[at] : type == 1 ? ((global const int*)list)[at] : 0;
    if (type == 0) index = list[at] == list[at] ? convert_long_sat(list[at]) : 0;
    if (index < 0) index += depth;
    move_one(y + y0, i, values + values0, index == i / inner % depth ? 1 : 0, width);
  }
}

// The upper or lower triangle of matrices; the rest is 0. Grid: pieces.
EVN_KERNEL void trilu(global const float* x, ulong x0, global const float* diagonal, ulong diagonal0, global float* y, ulong y0, long n,
                      long chunk, long rows, long columns, int has_diagonal, int upper, int width) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  const long k = has_diagonal ? clamp(((global const long*)(diagonal + diagonal0))[0], -rows - 1, columns + 1) : 0;
  for (long i = begin; i < end; ++i) {
    const long row = i / columns % rows, column = i % columns;
    if (upper ? column >= row + k : column <= row + k) move_one(y + y0, i, x + x0, i, width);
    else clear_one(y + y0, i, width);
  }
}

// v: the axes of y, with x's dims and strides. Grid: pieces of the n elements of y.
EVN_KERNEL void tile(global const float* x, ulong x0, global float* y, ulong y0, View v, long n, long chunk) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) {
    long from = 0, rest = i;
    for (int axis = v.rank - 1; axis >= 0; --axis) {
      from += rest % v.dim[axis] % v.stride[0][axis] * v.stride[1][axis];
      rest /= v.dim[axis];
    }
    move_one(y + y0, i, x + x0, from, v.width);
  }
}

// Blocks [time, batch] or [batch, time]: of each element of the batch the first steps in reverse order. Grid: pieces of a block, blocks.
EVN_KERNEL void reverse_sequence(global const float* x, ulong x0, global const float* lengths, ulong lengths0, global float* y, ulong y0,
                                 long time, long batch, long block, long chunk, int batch_first, int width) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, block);
  const long place = get_global_id(1);
  const long n = batch_first ? place / time : place % batch, t = batch_first ? place % time : place / batch;
  const long length = clamp(((global const long*)(lengths + lengths0))[n], 0L, time);
  const long source = t < length ? length - 1 - t : t;
  const long from = (batch_first ? n * time + source : source * batch + n) * block;
  for (long i = begin; i < end; ++i) move_one(y + y0, place * block + i, x + x0, from + i, width);
}

// ---- TopK ----

// Whether a at place i comes before b at place j: the larger one (else the smaller one), of equal ones the first; NaN is the largest.
#define EVN_BEFORE(a, i, b, j) (((a) != (a) ? 1 : 0) != ((b) != (b) ? 1 : 0) ? ((a) != (a)) == (largest != 0) \
                                : (a) == (b) || (a) != (a) ? (i) < (j) : largest ? (a) > (b) : (a) < (b))

// Rows of `length` elements that are `inner` apart; each of the k is the first of those that come after the one before. Grid: pieces of
// the rows.
#define EVN_DEFINE_TOP_K(NAME, T)                                                                                                    \
  EVN_KERNEL void NAME(global const float* x, ulong x0, global float* y, ulong y0, global float* places, ulong places0, long rows,   \
                       long length, long inner, long k, long chunk, int largest, int has_y, int has_places) {                       \
    const long begin = (long)get_global_id(0) * chunk;                                                                               \
    const long end = min(begin + chunk, rows);                                                                                       \
    for (long row = begin; row < end; ++row) {                                                                                       \
      global const T* in = (global const T*)(x + x0) + row / inner * length * inner + row % inner;                                   \
      long last = -1;                                                                                                                \
      T value = 0;                                                                                                                   \
      for (long n = 0; n < k; ++n) {                                                                                                 \
        long best = -1;                                                                                                              \
        T top = 0;                                                                                                                   \
        for (long i = 0; i < length; ++i) {                                                                                          \
          const T v = in[i * inner];                                                                                                 \
          if (last >= 0 && !EVN_BEFORE(value, last, v, i)) continue;                                                                 \
          if (best >= 0 && !EVN_BEFORE(v, i, top, best)) continue;                                                                   \
          best = i;                                                                                                                  \
          top = v;                                                                                                                   \
        }                                                                                                                            \
        const long to = (row / inner * k + n) * inner + row % inner;                                                                 \
        if (has_y) ((global T*)(y + y0))[to] = top;                                                                                  \
        if (has_places) ((global long*)(places + places0))[to] = best;                                                               \
        last = best;                                                                                                                 \
        value = top;                                                                                                                 \
      }                                                                                                                              \
    }                                                                                                                                \
  }
EVN_DEFINE_TOP_K(top_k_float, float)
EVN_DEFINE_TOP_K(top_k_int, int)
EVN_DEFINE_TOP_K(top_k_long, long)
