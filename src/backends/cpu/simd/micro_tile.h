// Where the accumulators of a micro-tile, R rows by NV vectors, begin and end: what gemm/gemm_loops.cc and
// gemm/packed_gemm_loops.cc share. Included by these only. These lines are compiled for every size of a tile: each way to begin
// that is not frequent is by way of C.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

// The tile of C, in one block of k. Blocks after the first begin with 0, and C is added to their sums: one chain over all of k
// would have rounding errors that grow with k.
struct MicroTile {
  float* c;
  std::int64_t ldc;
  std::int64_t last_lanes;  // lanes of the last vector
  bool from_c;              // the sums begin with what is in C; else with `bias`, or with 0 where that is null
  bool onto_c;              // a block after the first: what is in C is added to the sums
  const float* bias;        // of the columns, or of the rows, `bias_step` apart
  std::int64_t bias_step;
  const float* residual;  // only in the last block
  std::int64_t ldr;
  bool bound;
  float low, high;
};

enum class BiasOf { kRows, kColumns };

// The last vector of a row: n lanes.
inline Vec load_last(const float* p, std::int64_t n) {
#if defined(__AVX2__)
  return load_n(p, n);
#else
  return n == kLanes ? load(p) : load_n(p, n);
#endif
}

inline void store_last(float* p, Vec v, std::int64_t n) {
#if !defined(__AVX512F__)
  if (n == kLanes) return store(p, v);
#endif
  store_n(p, v, n);
}

template <BiasOf B, int R, int NV>
inline void start(const MicroTile& g, Vec (&acc)[R][NV]) {
  const auto load_at = [&](const float* p, int v) {
    return v + 1 < NV ? load(p + v * kLanes) : load_last(p + v * kLanes, g.last_lanes);
  };
  if (g.from_c) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) acc[r][v] = load_at(g.c + r * g.ldc, v);
    }
    return;
  }
  if (B == BiasOf::kRows) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec bias = g.bias == nullptr ? zero() : splat(g.bias[r * g.bias_step]);
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) acc[r][v] = bias;
    }
    return;
  }
#pragma GCC unroll 16
  for (int v = 0; v < NV; ++v) {
    const Vec bias = g.bias == nullptr ? zero() : load_at(g.bias, v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) acc[r][v] = bias;
  }
}

template <bool Residual, int R, int NV>
inline void finish(const MicroTile& g, Vec (&acc)[R][NV]) {
  const int addends = Residual && g.residual != nullptr ? 2 : 1;
#pragma GCC unroll 1
  for (int i = g.onto_c ? 0 : 1; i < addends; ++i) {
    const float* from = i == 0 ? g.c : g.residual;
    const std::int64_t step = i == 0 ? g.ldc : g.ldr;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r, from += step) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) {
        acc[r][v] = acc[r][v] + (v + 1 < NV ? load(from + v * kLanes) : load_last(from + v * kLanes, g.last_lanes));
      }
    }
  }
  if (g.bound) {
    const Vec low = splat(g.low);
    const Vec high = splat(g.high);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) acc[r][v] = min_of(high, max_of(low, acc[r][v]));
    }
  }
  float* c = g.c;  // copies: as the compiler sees it, what is stored could be these
  const std::int64_t ldc = g.ldc;
  const auto last_lanes = g.last_lanes;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r, c += ldc) {
#pragma GCC unroll 16
    for (int v = 0; v + 1 < NV; ++v) store(c + v * kLanes, acc[r][v]);
    store_last(c + (NV - 1) * kLanes, acc[r][NV - 1], last_lanes);
  }
}

// Start values init[row * row_step + column * column_step] * scale, written to C.
template <typename Tile>
void write_start(const Tile& t, std::int64_t row, std::int64_t m) {
  for (std::int64_t r = row; r < row + m; ++r) {
    const float* const init = t.init + r * t.init_row;
    float* const c = t.c + r * t.ldc;
    for (std::int64_t j = 0; j < t.n; ++j) c[j] = init[j * t.init_column] * t.init_scale;
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
