// Shuffles of whole vectors for one cluster: transposition of a square of them, and sums and maxima over lanes in a tree. Included
// by simd/*.cc only.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {

// The first halves of a and b, lane by lane in turns; the second halves.
#if defined(__AVX512F__)
static inline Vec zip_low(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline Vec zip_high(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__)
static inline Vec zip_low(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
static inline Vec zip_high(Vec a, Vec b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#else
static inline Vec zip_low(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static inline Vec zip_high(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#endif

static inline Vec lane_numbers() {
  Vec v = zero();
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(i);
  return v;
}

// The first n lanes of v, and the others of `rest`.
static inline Vec first_lanes(Vec v, Vec rest, std::int64_t n) { return lane_numbers() < splat(static_cast<float>(n)) ? v : rest; }

// v as rows of a square matrix becomes its columns: each round deals the rows out like cards, and after log2 of them each lane
// number has become a row number.
static inline void transpose(Vec (&v)[kLanes]) {
  Vec w[kLanes];
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      w[2 * i] = zip_low(v[i], v[i + kLanes / 2]);
      w[2 * i + 1] = zip_high(v[i], v[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = w[i];
  }
}

// Lane i of v[0] becomes the sum of the lanes of v[i], added in a tree.
static inline void fold_all(Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) v[i] = zip_low(v[i], v[i + half]) + zip_high(v[i], v[i + half]);
  }
}

// Lane i of v[0] becomes the largest lane of v[i]; NaN may be passed over.
static inline void top_all(Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) v[i] = max_of(zip_low(v[i], v[i + half]), zip_high(v[i], v[i + half]));
  }
}

}  // namespace evn::EVN_ISA
