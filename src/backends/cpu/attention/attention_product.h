// Products of a few rows by whole vectors of columns, in register tiles: scores by packed keys, and weights by values. Included by
// attention_loops.cc only.
#pragma once

#include "backends/cpu/simd/cancel_points.h"
#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

// Register tiles of kMr rows by kNv vectors; kKc rows of packed values stay in L1.
#if defined(__AVX512F__)
constexpr int kMr = 6, kNv = 4, kKc = 128;
#elif defined(__AVX2__)
constexpr int kMr = 6, kNv = 2, kKc = 64;
#else
constexpr int kMr = 4, kNv = 2, kKc = 64;
#endif

struct Product {
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
  std::int64_t k;
  const float* start;  // where the chains go on from; null: 0
  std::int64_t ld_start;
  float* c;  // may be `start`
  std::int64_t ldc;
  float scale;             // of the result
  const float* row_scale;  // nullable: instead, for each row
};

// c[R][NV vectors] = (start + a b) * scale, one chain of multiply-adds for each element.
template <int R, int NV>
void micro(const Product& g) {
  Vec acc[R][NV];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < NV; ++v) acc[r][v] = g.start == nullptr ? zero() : load(g.start + r * g.ld_start + v * kLanes);
  }
  const float* a = g.a;
  const float* a3 = g.a + (R > 3 ? 3 * g.lda : 0);
  const float* b = g.b;
  const std::int64_t lda = g.lda;
  const std::int64_t ldb = g.ldb;
  for (std::int64_t k = 0; k < g.k; ++k) {
    Vec bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec x = splat(r < 3 ? a[r * lda] : a3[(r - 3) * lda]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[r][v] = fma(x, bv[v], acc[r][v]);
    }
    ++a;
    ++a3;
    b += ldb;
  }
  for (int r = 0; r < R; ++r) {
    const Vec scale = splat(g.row_scale == nullptr ? g.scale : g.row_scale[r]);
    for (int v = 0; v < NV; ++v) store(g.c + r * g.ldc + v * kLanes, acc[r][v] * scale);
  }
}

using MicroFn = void (*)(const Product&);
#if defined(__AVX512F__)
#define EVN_MICROS(R) \
  { micro<R, 1>, micro<R, 2>, micro<R, 3>, micro<R, 4> }
#else
#define EVN_MICROS(R) \
  { micro<R, 1>, micro<R, 2> }
#endif
constexpr MicroFn kMicros[][kNv] = {
    EVN_MICROS(1), EVN_MICROS(2), EVN_MICROS(3), EVN_MICROS(4),
#if defined(__AVX2__)
    EVN_MICROS(5), EVN_MICROS(6),
#endif
};

// A product of one row takes so many vectors of columns at a time: as many chains of multiply-adds as hide their latency.
constexpr std::int64_t kRowNv = 8;
static_assert(kRowNv > kNv);

// `rows` rows by `vectors` vectors of columns, in register tiles of like heights.
void product(CancelPoints* points, Product g, std::int64_t rows, std::int64_t vectors) {
  if (rows == 1 && vectors == kRowNv) {
    if (!stops(points, vectors * kLanes * g.k)) micro<1, kRowNv>(g);
    return;
  }
  const std::int64_t blocks = (rows + kMr - 1) / kMr;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t height = rows / blocks + (i < rows % blocks ? 1 : 0);
    if (stops(points, height * vectors * kLanes * g.k)) return;
    kMicros[height - 1][vectors - 1](g);
    g.a += height * g.lda;
    g.c += height * g.ldc;
    if (g.start != nullptr) g.start += height * g.ld_start;
    if (g.row_scale != nullptr) g.row_scale += height;
  }
}

// Cuts `vectors` vectors of columns into panels of up to kNv: f(first vector, vectors of the panel).
template <typename F>
inline void each_panel(std::int64_t vectors, F f) {
  const std::int64_t panels = (vectors + kNv - 1) / kNv;
  for (std::int64_t i = 0, at = 0; i < panels; ++i) {
    const std::int64_t width = vectors / panels + (i < vectors % panels ? 1 : 0);
    f(at, width);
    at += width;
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
