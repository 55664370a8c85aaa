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

// to[i] = from[2 * i]; reads nothing beyond from[2 * n - 2], and may write up to a whole vector beyond.
static inline void copy_even(float* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (; i + kLanes < n; i += kLanes) {
    store(to + i, _mm512_permutex2var_ps(load(from + 2 * i), even, load(from + 2 * i + kLanes)));
  }
  if (i < n) {
    const std::int64_t floats = 2 * (n - i) - 1;
    const Vec a = load_n(from + 2 * i, floats < kLanes ? floats : kLanes);
    const Vec b = floats > kLanes ? load_n(from + 2 * i + kLanes, floats - kLanes) : zero();
    store(to + i, _mm512_permutex2var_ps(a, even, b));
  }
#elif defined(__AVX2__)
  const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
  for (; i + kLanes < n; i += kLanes) {
    const __m256 mixed = _mm256_shuffle_ps(load(from + 2 * i), load(from + 2 * i + kLanes), 0x88);
    store(to + i, _mm256_permutevar8x32_ps(mixed, order));
  }
  if (i < n) {
    const std::int64_t floats = 2 * (n - i) - 1;
    const Vec a = load_n(from + 2 * i, floats < kLanes ? floats : kLanes);
    const Vec b = floats > kLanes ? load_n(from + 2 * i + kLanes, floats - kLanes) : zero();
    store(to + i, _mm256_permutevar8x32_ps(_mm256_shuffle_ps(a, b, 0x88), order));
  }
#else
  for (; i < n; ++i) to[i] = from[2 * i];
#endif
}

}  // namespace evn::EVN_ISA
