// RepeatTo: what undoes SumTo. Elements are those of x at their position modulo the dims of x.

typedef struct {
  int rank;        // outer axes
  int step;        // 0 or 1: along the innermost axis of x
  long inner;      // elements of the innermost axis
  long rows;       // product of the outer axes
  long row_chunk;  // rows of one work item
  long chunk;      // elements of a row of one work item
  long dim[16], stride[16];
} Repeat;

// Grid: pieces of rows, groups of rows.
EVN_KERNEL void repeat_to(global const float* x, ulong x0, global float* y, ulong y0, Repeat p) {
  const long begin = (long)get_global_id(0) * p.chunk;
  const long end = min(begin + p.chunk, p.inner);
  const long first = (long)get_global_id(1) * p.row_chunk;
  const long last = min(first + p.row_chunk, p.rows);
  for (long row = first; row < last; ++row) {
    global const float* from = x + x0 + offset_of(row, p.rank, p.dim, p.stride);
    global float* to = y + y0 + row * p.inner;
    long i = begin;
    if (p.step != 0) {
      for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(LOADV(from + i), to + i);
    } else {
      const VF v = (VF)from[0];
      for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(v, to + i);
    }
    for (; i < end; ++i) to[i] = from[i * p.step];
  }
}
