// Tensors that are made of a few numbers: Range, Shape, Size, EyeLike.

// start + i * delta. Grid: pieces.
EVN_KERNEL void range_floats(global float* y, ulong y0, long n, long chunk, float start, float delta, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) y[y0 + i] = apply_epilogue(fma((float)i, delta, start), &e);
}

// Whole numbers of `width` bytes. Grid: pieces.
EVN_KERNEL void range_integers(global float* y, ulong y0, long n, long chunk, ulong start, ulong delta, int width) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) {
    const ulong v = start + (ulong)i * delta;
    if (width == 8) ((global ulong*)(y + y0))[i] = v;
    else if (width == 4) ((global uint*)(y + y0))[i] = (uint)v;
    else ((global ushort*)(y + y0))[i] = (ushort)v;
  }
}

typedef struct {
  long v[8];
} Longs;

EVN_KERNEL void put_longs(global float* y, ulong y0, Longs values, int count) {
  const int i = get_global_id(0);
  if (i < count) ((global long*)(y + y0))[i] = values.v[i];
}

// `bits` where column - row is k, else 0. Grid: columns, rows.
EVN_KERNEL void eye(global float* y, ulong y0, long columns, long k, int width, ulong bits, Epilogue e) {
  const long column = get_global_id(0), row = get_global_id(1);
  if (column >= columns) return;
  const long i = row * columns + column;
  const ulong v = column - row == k ? bits : 0;
  global float* to = y + y0;
  if (width == 8) ((global ulong*)to)[i] = v;
  else if (width == 4) to[i] = apply_epilogue(as_float((uint)v), &e);
  else if (width == 2) ((global ushort*)to)[i] = (ushort)v;
  else ((global uchar*)to)[i] = (uchar)v;
}
