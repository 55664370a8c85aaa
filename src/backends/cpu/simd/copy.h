// Short copies of floats for one cluster. Included by simd/*.cc only.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {

// Copies n floats; may write up to a whole vector beyond, reads exactly n.
static inline void copy_over(float* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store(to + i, load_n(from + i, n - i));
}
static inline void zero_over(float* to, std::int64_t n) {
  Vec zeros = zero();
  hide(&zeros);  // or the compiler calls memset, mostly for a few floats
  for (std::int64_t i = 0; i < n; i += kLanes) store(to + i, zeros);
}

// Every second lane of two vectors together.
#if defined(__AVX512F__)
#define EVN_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define EVN_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif defined(__AVX2__)
#define EVN_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define EVN_ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
#define EVN_EVEN 0, 2, 4, 6
#define EVN_ODD 1, 3, 5, 7
#endif
static inline Vec even_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, EVN_EVEN); }
static inline Vec odd_lanes(Vec a, Vec b) { return __builtin_shufflevector(a, b, EVN_ODD); }
#undef EVN_EVEN
#undef EVN_ODD

// to[i] = from[2 * i]; reads nothing beyond from[2 * n - 2]. `store_last` writes the last n lanes, of a vector or less.
template <typename F>
static inline void copy_even(float* to, const float* from, std::int64_t n, F store_last) {
  std::int64_t i = 0;
  for (; i + kLanes < n; i += kLanes) store(to + i, even_lanes(load(from + 2 * i), load(from + 2 * i + kLanes)));
  if (i >= n) return;
  const std::int64_t floats = 2 * (n - i) - 1;
  store_last(to + i, even_lanes(load_some(from + 2 * i, floats), load_some(from + 2 * i + kLanes, floats - kLanes)), n - i);
}

// copy_even that may write up to a whole vector beyond to[n - 1].
static inline void copy_even_over(float* to, const float* from, std::int64_t n) {
  copy_even(to, from, n, [](float* last, Vec v, std::int64_t) { store(last, v); });
}

}  // namespace evn::EVN_ISA
