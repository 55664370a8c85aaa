// The micro-tile of products with at most four columns: a vector holds the four columns of each of kLanes / 4 rows, so that few
// lanes are idle where a vector of columns would have one to four at work. Each element is the same chain as in a micro-tile of
// whole vectors. Included by gemm/packed_gemm_loops.cc only.
#pragma once

#include "backends/cpu/simd/micro_tile.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kQuadColumns = 4;
constexpr int kQuadRows = kLanes / kQuadColumns;  // of a vector
constexpr int kQuadVectors = 4;
constexpr int kQuadMr = kQuadRows * kQuadVectors;

// Four floats of each row, the rows `step` apart.
inline Vec load_quads(const float* p, std::int64_t step) {
#if defined(__AVX512F__)
  const __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));
  const __m512 w = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(p + step));
  const __m512 x = _mm512_mask_broadcast_f32x4(w, 0x0f00, _mm_loadu_ps(p + 2 * step));
  return _mm512_mask_broadcast_f32x4(x, 0xf000, _mm_loadu_ps(p + 3 * step));
#elif defined(__AVX2__)
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + step), 1);
#else
  (void)step;
  return load(p);
#endif
}

inline Vec repeat_quad(const float* p) {
#if defined(__AVX512F__)
  return _mm512_maskz_broadcast_f32x4(kAllLanes, _mm_loadu_ps(p));
#elif defined(__AVX2__)
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
#else
  return load(p);
#endif
}

// In each quad its element K four times.
template <int K>
inline Vec spread_in_quads(Vec v) {
#if defined(__AVX512F__)
  return _mm512_maskz_permute_ps(kAllLanes, v, K * 0x55);
#elif defined(__AVX2__)
  return _mm256_permute_ps(v, K * 0x55);
#else
  return Vec{v[K], v[K], v[K], v[K]};
#endif
}

// kQuadMr rows of A, `lda` apart, by k rows of B in one panel of kLanes columns.
inline void micro_quads(const MicroTile& g, const float* a, std::int64_t lda, std::int64_t k, const float* b) {
  alignas(64) float c[kQuadVectors][kLanes] = {};
  const std::int64_t n = g.last_lanes;
  float* const rows = &c[0][0];
  for (std::int64_t j = 0; j < n && g.bias != nullptr && !g.from_c; ++j) rows[j] = g.bias[j];
  for (std::int64_t r = 0; r < kQuadMr && g.from_c; ++r) {
    for (std::int64_t j = 0; j < n; ++j) rows[r * kQuadColumns + j] = g.c[r * g.ldc + j];
  }
  Vec acc[kQuadVectors];
  for (int v = 0; v < kQuadVectors; ++v) acc[v] = g.from_c ? load(c[v]) : repeat_quad(rows);
  const float* at[kQuadVectors];
  for (int v = 0; v < kQuadVectors; ++v) at[v] = a + v * kQuadRows * lda;
  std::int64_t i = 0;
  for (; i + 4 <= k; i += 4, b += 4 * kLanes) {
    const Vec b0 = repeat_quad(b), b1 = repeat_quad(b + kLanes), b2 = repeat_quad(b + 2 * kLanes), b3 = repeat_quad(b + 3 * kLanes);
#pragma GCC unroll 4
    for (int v = 0; v < kQuadVectors; ++v) {
      const Vec x = load_quads(at[v] + i, lda);
      acc[v] = fma(spread_in_quads<0>(x), b0, acc[v]);
      acc[v] = fma(spread_in_quads<1>(x), b1, acc[v]);
      acc[v] = fma(spread_in_quads<2>(x), b2, acc[v]);
      acc[v] = fma(spread_in_quads<3>(x), b3, acc[v]);
    }
  }
  for (; i < k; ++i, b += kLanes) {
    for (int v = 0; v < kQuadVectors; ++v) {
      Vec x;
      for (int j = 0; j < kLanes; ++j) x[j] = at[v][i + j / kQuadColumns * lda];
      acc[v] = fma(x, repeat_quad(b), acc[v]);
    }
  }
  if (n == kQuadColumns && g.ldc == n && g.residual == nullptr && !g.onto_c) {
    for (int v = 0; v < kQuadVectors; ++v) {
      if (g.bound) acc[v] = min_of(splat(g.high), max_of(splat(g.low), acc[v]));
      store(g.c + v * kLanes, acc[v]);
    }
    return;
  }
  for (int v = 0; v < kQuadVectors; ++v) store(c[v], acc[v]);
  for (std::int64_t r = 0; r < kQuadMr; ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      float y = rows[r * kQuadColumns + j];
      if (g.onto_c) y += g.c[r * g.ldc + j];
      if (g.residual != nullptr) y += g.residual[r * g.ldr + j];
      if (g.bound) {
        y = y < g.low ? g.low : y;
        y = y > g.high ? g.high : y;
      }
      g.c[r * g.ldc + j] = y;
    }
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
