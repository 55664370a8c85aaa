// Where the accumulators of a micro-tile, R rows by NV vectors, begin and end: what simd/gemm.cc and simd/product.cc share. Included by
// these only.
#pragma once

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

// The tile of C, in one block of k.
struct MicroTile {
  float* c;
  std::int64_t ldc;
  std::int64_t last_lanes; // lanes of the last vector
  const float* init;       // only in the first block
  std::int64_t init_row, init_column;
  float init_scale;
  const float* residual;   // only in the last block
  std::int64_t ldr;
  bool first, bound;
  float low, high;
};

inline Vec load_part(const float* p, bool whole, std::int64_t n) { return whole ? load(p) : load_n(p, n); }

template <int R, int NV>
inline void start(const MicroTile& g, Vec (&acc)[R][NV]) {
  const bool whole = g.last_lanes == kLanes;
  if (g.first && g.init == nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) acc[r][v] = zero();
    }
    return;
  }
  if (g.first && g.init_row == 0 && g.init_column == 1) {  // a bias of the columns
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      const Vec bias = splat(g.init_scale) * load_part(g.init + v * kLanes, v + 1 < NV || whole, g.last_lanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) acc[r][v] = bias;
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < NV; ++v) {
      const bool full = v + 1 < NV || whole;
      if (!g.first) {
        acc[r][v] = load_part(g.c + r * g.ldc + v * kLanes, full, g.last_lanes);
      } else if (g.init_column == 0) {
        acc[r][v] = splat(g.init[r * g.init_row] * g.init_scale);
      } else {
        acc[r][v] = splat(g.init_scale) * load_part(g.init + r * g.init_row + v * kLanes, full, g.last_lanes);
      }
    }
  }
}

template <int R, int NV>
inline void finish(const MicroTile& g, Vec (&acc)[R][NV]) {
  const bool whole = g.last_lanes == kLanes;
  if (g.residual != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < NV; ++v) {
        acc[r][v] = acc[r][v] + load_part(g.residual + r * g.ldr + v * kLanes, v + 1 < NV || whole, g.last_lanes);
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
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    float* c = g.c + r * g.ldc;
#pragma GCC unroll 16
    for (int v = 0; v + 1 < NV; ++v) store(c + v * kLanes, acc[r][v]);
    if (whole) {
      store(c + (NV - 1) * kLanes, acc[r][NV - 1]);
    } else {
      store_n(c + (NV - 1) * kLanes, acc[r][NV - 1], g.last_lanes);
    }
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
