// Local response normalization over channels: x / (bias + scale * sum of squares)^beta.

#include "sums.cl"

__attribute__((overloadable)) static inline VF pow_of(VF x, float y) { return pow(x, (VF)y); }
__attribute__((overloadable)) static inline float pow_of(float x, float y) { return pow((VF)x, (VF)y).s0; }

#define EVN_LRN(T, TOTAL, LOAD, STORE)                                                           \
  {                                                                                              \
    TOTAL all;                                                                                   \
    start(&all);                                                                                 \
    for (long k = low; k <= high; ++k) {                                                         \
      const T v = LOAD(image + k * inner + i);                                                   \
      add_product(&all, v, v);                                                                   \
    }                                                                                            \
    const T v = LOAD(image + channel * inner + i) / pow_of(fma((T)scale, total(&all), (T)bias), beta); \
    STORE(apply_epilogue(v, &e), out + i);                                                       \
  }
#define EVN_LOAD1(p) (*(p))
#define EVN_STORE1(v, p) *(p) = (v)

// Grid: pieces of a plane, planes.
EVN_KERNEL void lrn(global const float* x, ulong x0, global float* y, ulong y0, long channels, long inner, long chunk, long before,
                    long after, float scale, float beta, float bias, Epilogue e) {
  const long begin = (long)get_global_id(0) * chunk;
  const long end = min(begin + chunk, inner);
  const long plane = get_global_id(1);
  const long channel = plane % channels;
  const long low = max(channel - before, 0L);
  const long high = min(channel + after, channels - 1);
  global const float* image = x + x0 + (plane - channel) * inner;
  global float* out = y + y0 + plane * inner;
  long i = begin;
  for (; i + EVN_LANES <= end; i += EVN_LANES) EVN_LRN(VF, Sums, LOADV, STOREV)
  for (; i < end; ++i) EVN_LRN(float, Sum, EVN_LOAD1, EVN_STORE1)
}
