// Squares of kLanes rows are transposed in registers: rows are interleaved inside parts of four lanes, then parts are exchanged.
// Edges use the same squares with masks. Two or three rows into dense columns are interleaved instead.
#include "backends/cpu/move/transpose_loops.h"

#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

// Vectors of output that the squares write to before the next rows are read: so many positions of a row are read in turn, which is
// what the prefetcher of the hardware follows.
constexpr std::int64_t kAhead = 4;

#if defined(__AVX512F__)
inline Vec low_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
inline Vec high_pairs(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
inline Vec low_halves(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
inline Vec high_halves(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
// Parts 0 and 1 (2 and 3) of both; parts 0 and 2 (1 and 3) of both.
inline Vec first_parts(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
inline Vec last_parts(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
inline Vec even_parts(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
inline Vec odd_parts(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#elif defined(__AVX2__)
inline Vec low_pairs(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13); }
inline Vec high_pairs(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15); }
inline Vec low_halves(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13); }
inline Vec high_halves(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15); }
inline Vec even_parts(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11); }
inline Vec odd_parts(Vec a, Vec b) { return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15); }
#else
inline Vec low_pairs(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Vec high_pairs(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Vec low_halves(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
inline Vec high_halves(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }
#endif

// Four rows: each part of four lanes becomes a transposed square of its own.
inline void transpose_parts(Vec* v) {
  const Vec a = low_pairs(v[0], v[1]), b = high_pairs(v[0], v[1]);
  const Vec c = low_pairs(v[2], v[3]), d = high_pairs(v[2], v[3]);
  v[0] = low_halves(a, c);
  v[1] = high_halves(a, c);
  v[2] = low_halves(b, d);
  v[3] = high_halves(b, d);
}

inline void transpose_square(Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) transpose_parts(v + i);
#if defined(__AVX512F__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Vec a = first_parts(v[i], v[i + 4]), b = last_parts(v[i], v[i + 4]);
    const Vec c = first_parts(v[i + 8], v[i + 12]), d = last_parts(v[i + 8], v[i + 12]);
    v[i] = even_parts(a, c);
    v[i + 4] = odd_parts(a, c);
    v[i + 8] = even_parts(b, d);
    v[i + 12] = odd_parts(b, d);
  }
#elif defined(__AVX2__)
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Vec a = v[i], b = v[i + 4];
    v[i] = even_parts(a, b);
    v[i + 4] = odd_parts(a, b);
  }
#endif
}

inline void whole_square(const float* x, std::int64_t x_step, float* y, std::int64_t y_step) {
  Vec v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = load(x + i * x_step);
  transpose_square(v);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(y + i * y_step, v[i]);
}

void edge_square(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step) {
  Vec v[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = i < rows ? load_n(x + i * x_step, columns) : zero();
  transpose_square(v);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < columns) store_n(y + i * y_step, v[i], rows);
  }
}

#if defined(__AVX512F__)
inline Vec first_of_both(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Vec last_of_both(Vec a, Vec b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#elif defined(__AVX2__)
inline Vec first_of_both(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Vec last_of_both(Vec a, Vec b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#else
inline Vec first_of_both(Vec a, Vec b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Vec last_of_both(Vec a, Vec b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#endif

// Two rows to columns without gaps.
void interleave_two(const float* x, std::int64_t x_step, std::int64_t columns, float* y) {
  std::int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    const Vec a = load(x + j), b = load(x + x_step + j);
    store(y + 2 * j, first_of_both(a, b));
    store(y + 2 * j + kLanes, last_of_both(a, b));
  }
  const std::int64_t left = columns - j;
  if (left == 0) return;
  const Vec a = load_n(x + j, left), b = load_n(x + x_step + j, left);
  const std::int64_t floats = 2 * left;
  store_n(y + 2 * j, first_of_both(a, b), floats < kLanes ? floats : kLanes);
  if (floats > kLanes) store_n(y + 2 * j + kLanes, last_of_both(a, b), floats - kLanes);
}

#if defined(__AVX512F__) || defined(__AVX2__)
// Which lane of which of three rows each lane of output vector k takes; a lane of the third row is marked by a third of the range.
struct Interleaving {
  IntVec lanes[3];
  IntVec row[3];
};

inline Interleaving interleaving_of_three() {
  Interleaving t;
  for (int k = 0; k < 3; ++k) {
    for (int i = 0; i < kLanes; ++i) {
      t.lanes[k][i] = (k * kLanes + i) / 3;
      t.row[k][i] = (k * kLanes + i) % 3;
    }
  }
  return t;
}

inline Vec permuted(Vec x, IntVec lanes) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_maskz_permutexvar_ps(kAllLanes, reinterpret_cast<__m512i>(lanes), reinterpret_cast<__m512>(x)));
#else
  return reinterpret_cast<Vec>(_mm256_permutevar8x32_ps(reinterpret_cast<__m256>(x), reinterpret_cast<__m256i>(lanes)));
#endif
}

// Three rows to columns without gaps.
void interleave_three(const float* x, std::int64_t x_step, std::int64_t columns, float* y) {
  const Interleaving t = interleaving_of_three();
  std::int64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    const Vec a = load(x + j), b = load(x + x_step + j), c = load(x + 2 * x_step + j);
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) {
      const Vec p = permuted(a, t.lanes[k]), q = permuted(b, t.lanes[k]), r = permuted(c, t.lanes[k]);
      store(y + 3 * j + k * kLanes, t.row[k] == 0 ? p : t.row[k] == 1 ? q : r);
    }
  }
  for (; j < columns; ++j) {
    for (int i = 0; i < 3; ++i) y[3 * j + i] = x[i * x_step + j];
  }
}
#endif

void transpose(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step) {
  if (rows == 2 && y_step == 2) return interleave_two(x, x_step, columns, y);
#if defined(__AVX512F__) || defined(__AVX2__)
  if (rows == 3 && y_step == 3) return interleave_three(x, x_step, columns, y);
#endif
  constexpr std::int64_t kWidth = kAhead * kLanes;
  for (std::int64_t j0 = 0; j0 < columns; j0 += kWidth) {
    const std::int64_t j1 = columns - j0 < kWidth ? columns : j0 + kWidth;
    for (std::int64_t i = 0; i < rows; i += kLanes) {
      const std::int64_t height = rows - i < kLanes ? rows - i : kLanes;
      for (std::int64_t j = j0; j < j1; j += kLanes) {
        const std::int64_t width = j1 - j < kLanes ? j1 - j : kLanes;
        if (height == kLanes && width == kLanes) {
          whole_square(x + i * x_step + j, x_step, y + j * y_step + i, y_step);
        } else {
          edge_square(x + i * x_step + j, x_step, height, width, y + j * y_step + i, y_step);
        }
      }
    }
  }
}

void copy(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step) {
  for (std::int64_t r = 0; r < rows; ++r, x += x_step, y += y_step) {
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
      const Vec a = load(x + i), b = load(x + i + kLanes), c = load(x + i + 2 * kLanes), d = load(x + i + 3 * kLanes);
      store(y + i, a);
      store(y + i + kLanes, b);
      store(y + i + 2 * kLanes, c);
      store(y + i + 3 * kLanes, d);
    }
    for (; i + kLanes <= columns; i += kLanes) store(y + i, load(x + i));
    if (i < columns) store_n(y + i, load_n(x + i, columns - i), columns - i);
  }
}

void copy_even_rows(const float* x, std::int64_t x_step, std::int64_t rows, std::int64_t columns, float* y, std::int64_t y_step) {
  for (std::int64_t i = 0; i < rows; ++i) copy_even(y + i * y_step, x + i * x_step, columns, store_some);
}

}  // namespace

extern const simd_transpose::Loops loops_transpose;
const simd_transpose::Loops loops_transpose = {transpose, copy, copy_even_rows};

}  // namespace evn::EVN_ISA
