// DFT and STFT, as sums over a table of the turns' cosines and sines; and windows.

#include "sums.cl"

// cos and sin of i / n turns, side by side. Grid: pieces.
EVN_KERNEL void turns(global float* y, ulong y0, long n, long chunk) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) {
    const VF half_turns = (VF)(2.0f * (float)i / (float)n);
    y[y0 + 2 * i] = cospi(half_turns).s0;
    y[y0 + 2 * i + 1] = sinpi(half_turns).s0;
  }
}

typedef struct {
  int parts, out_parts;   // of an element: real, or real and imaginary
  int inverse;            // turns run forwards, and the sum is divided by their number
  int mirrored;           // only the first half of a real signal's spectrum is given
  int has_window, padding;
  long given, length, outputs;      // elements of a signal that are there, that are taken, that come out
  long inner;                       // signals of one outer index
  long x_outer, x_inner, x_step;    // in floats
  long y_outer, y_inner, y_step;
} Transform;

// Element n of the signal that begins at x; beyond what is given, 0.
static inline float2 sample(const Transform* p, global const float* x, global const float* window, long n) {
  const bool other = p->mirrored && n > p->length / 2;
  const long at = other ? p->length - n : n;
  if (at >= p->given) return (float2)(0.0f, 0.0f);
  float2 v = (float2)(x[at * p->x_step], p->parts == 2 ? x[at * p->x_step + 1] : 0.0f);
  if (other) v.y = -v.y;
  return p->has_window ? v * window[n] : v;
}

// Grid: pieces of the outputs, signals.
EVN_KERNEL void transform(global const float* x, ulong x0, global const float* window, ulong window0, global const float* table,
                          ulong table0, global float* y, ulong y0, Transform p, long chunk, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, p.outputs);
  const long signal = get_global_id(1);
  global const float* in = x + x0 + signal / p.inner * p.x_outer + signal % p.inner * p.x_inner;
  global float* out = y + y0 + signal / p.inner * p.y_outer + signal % p.inner * p.y_inner;
  for (long k = begin; k < end; ++k) {
    Sum of_cosines, of_sines;
    start(&of_cosines);
    start(&of_sines);
    long turn = 0;
    for (long n = 0; n < p.length; ++n) {
      const float2 v = sample(&p, in, window + window0, n);
      const float c = table[table0 + 2 * turn], t = table[table0 + 2 * turn + 1], s = p.inverse ? t : -t;
      of_cosines.part = fma(-v.y, s, of_cosines.part);
      add_product(&of_cosines, v.x, c);
      of_sines.part = fma(v.y, c, of_sines.part);
      add_product(&of_sines, v.x, s);
      turn += k;
      if (turn >= p.length) turn -= p.length;
    }
    float real = total(&of_cosines), imaginary = total(&of_sines);
    if (p.inverse) {
      real /= (float)p.length;
      imaginary /= (float)p.length;
    }
    out[k * p.y_step] = apply_epilogue(real, &e);
    if (p.out_parts == 2) out[k * p.y_step + 1] = apply_epilogue(imaginary, &e);
  }
}

// a0 - a1 cos(t) over a turn of `steps`. Grid: pieces.
EVN_KERNEL void window_sum(global float* y, ulong y0, long n, long chunk, long steps, float a0, float a1, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, n);
  for (long i = begin; i < end; ++i) y[y0 + i] = apply_epilogue(a0 - a1 * cospi((VF)(2.0f * (float)i / (float)steps)).s0, &e);
}
