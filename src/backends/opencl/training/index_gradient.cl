// The derivatives of Gather and Slice. Those of Gather add up what was taken from a place in the order of the indices: a list of these
// is made for each place first.

#include "sums.cl"

static inline long index_at(global const int* indices, long i, long length, int wide) {
  const long index = wide ? ((global const long*)indices)[i] : (long)indices[i];
  return clamp(index < 0 ? index + length : index, 0L, length - 1);  // as Gather takes them
}

// No index to any place. Grid: pieces.
EVN_KERNEL void clear_lists(global int* heads, ulong heads0, long n, long chunk) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) heads[heads0 + i] = -1;
}

// One work item: from the last index on, so that lists go up.
EVN_KERNEL void link_lists(global const int* indices, ulong indices0, global int* heads, ulong heads0, global int* next, ulong next0,
                           long count, long length, int wide) {
  if (get_global_id(0) != 0) return;
  for (long i = count - 1; i >= 0; --i) {
    const long place = index_at(indices + indices0, i, length, wide);
    next[next0 + i] = heads[heads0 + place];
    heads[heads0 + place] = (int)i;
  }
}

// Grid: pieces of `inner`, groups of places, outer.
EVN_KERNEL void gather_gradient(global const float* dy, ulong dy0, global const int* heads, ulong heads0, global const int* next,
                                ulong next0, global float* dx, ulong dx0, long count, long length, long inner, long chunk, long places) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, inner);
  const long first = (long)get_global_id(1) * places, last = min(first + places, length);
  const long outer = get_global_id(2);
  global const float* g = dy + dy0 + outer * count * inner;
  for (long place = first; place < last; ++place) {
    global float* to = dx + dx0 + (outer * length + place) * inner;
    const int head = heads[heads0 + place];
    long k = begin;
    for (; k + EVN_LANES <= end; k += EVN_LANES) {
      Sums sum;
      start(&sum);
      for (int i = head; i >= 0; i = next[next0 + i]) add(&sum, LOADV(g + i * inner + k));
      STOREV(total(&sum), to + k);
    }
    for (; k < end; ++k) {
      Sum sum;
      start(&sum);
      for (int i = head; i >= 0; i = next[next0 + i]) add(&sum, g[i * inner + k]);
      to[k] = total(&sum);
    }
  }
}

typedef struct {
  int rank, padding;
  long rows, chunk;  // chunk: rows of one work item
  long dim[8], start[8], step[8], count[8];
} Sliced;

// Rows of dx: what was taken is dy, the rest 0. Grid: groups of rows.
EVN_KERNEL void slice_gradient(global const float* dy, ulong dy0, global float* dx, ulong dx0, Sliced p) {
  const long first = (long)get_global_id(0) * p.chunk, last = min(first + p.chunk, p.rows);
  const int inner = p.rank - 1;
  const long width = p.dim[inner];
  for (long row = first; row < last; ++row) {
    global float* to = dx + dx0 + row * width;
    for (long i = 0; i < width; ++i) to[i] = 0.0f;
    long rest = row, from = 0, block = 1;
    bool taken = true;
    for (int axis = inner - 1; axis >= 0; --axis) {
      const long distance = rest % p.dim[axis] - p.start[axis];
      rest /= p.dim[axis];
      const long number = distance / p.step[axis];
      taken = taken && distance % p.step[axis] == 0 && number >= 0 && number < p.count[axis];
      from += number * block;
      block *= p.count[axis];
    }
    if (!taken) continue;
    global const float* g = dy + dy0 + from * p.count[inner];
    for (long i = 0; i < p.count[inner]; ++i) to[p.start[inner] + i * p.step[inner]] = g[i];
  }
}
