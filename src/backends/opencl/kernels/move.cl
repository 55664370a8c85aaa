// Nearest neighbours by whole factors (Resize), and BatchNormalization.

// Each input element becomes a rectangle. Grid: output rows of a plane, planes.
EVN_KERNEL void resize_nearest(global const float* x, ulong x0, global float* y, ulong y0, int in_h, int in_w, int factor_h,
                               int factor_w, Epilogue e) {
  const int row = get_global_id(0);
  if (row >= in_h * factor_h) return;
  const long plane = get_global_id(1);
  global const float* in = x + x0 + (plane * in_h + row / factor_h) * in_w;
  global float* out = y + y0 + (plane * in_h * factor_h + row) * in_w * factor_w;
  int i = 0;
  for (; i + EVN_LANES <= in_w; i += EVN_LANES) {
    const VF v = apply_epilogue(LOADV(in + i), &e);
    global float* to = out + (long)i * factor_w;
    if (factor_w == 1) {
      STOREV(v, to);
    } else if (factor_w == 2) {
      VF low, high;
      low.even = low.odd = v.lo;
      high.even = high.odd = v.hi;
      STOREV(low, to);
      STOREV(high, to + EVN_LANES);
    } else {
      float lane[EVN_LANES];
      STOREV(v, lane);
      for (int l = 0; l < EVN_LANES; ++l) {
        for (int k = 0; k < factor_w; ++k) to[l * factor_w + k] = lane[l];
      }
    }
  }
  for (; i < in_w; ++i) {
    const float v = apply_epilogue(in[i], &e);
    for (int k = 0; k < factor_w; ++k) out[(long)i * factor_w + k] = v;
  }
}

EVN_KERNEL void resize_bytes(global const float* x, ulong x0, global float* y, ulong y0, int in_h, int in_w, int factor_h, int factor_w) {
  const int row = get_global_id(0);
  if (row >= in_h * factor_h) return;
  const long plane = get_global_id(1);
  global const uchar* in = (global const uchar*)(x + x0) + (plane * in_h + row / factor_h) * in_w;
  global uchar* out = (global uchar*)(y + y0) + (plane * in_h * factor_h + row) * in_w * factor_w;
  for (int i = 0; i < in_w; ++i) {
    for (int k = 0; k < factor_w; ++k) *out++ = in[i];
  }
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias, channel by channel. Grid: pieces of a plane, planes.
EVN_KERNEL void batch_norm(global const float* x, ulong x0, global const float* scale, ulong scale0, global const float* bias,
                           ulong bias0, global const float* mean, ulong mean0, global const float* variance, ulong variance0,
                           global float* y, ulong y0, long channels, long elements, long chunk, float epsilon, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, elements);
  const long plane = get_global_id(1);
  const long c = plane % channels;
  const float factor = scale[scale0 + c] / sqrt(variance[variance0 + c] + epsilon);
  const float offset = fma(-mean[mean0 + c], factor, bias[bias0 + c]);
  global const float* in = x + x0 + plane * elements;
  global float* out = y + y0 + plane * elements;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) STOREV(apply_epilogue(fma(LOADV(in + i), (VF)factor, (VF)offset), &e), out + i);
  for (; i < end; ++i) out[i] = apply_epilogue(fma(in[i], factor, offset), &e);
}
