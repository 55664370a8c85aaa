// The micro-kernel of the implicit GEMM and the walk over its panels, for the loops of one instruction-set cluster: included by
// those files alone.
#pragma once

#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

constexpr std::int64_t kPanelRows = 256;  // of a panel of B that stay in L2

struct Micro {
  const float* x;
  const std::int64_t* rows;
  const std::int64_t* ks;
  const float* b;
  std::int64_t k;
  float* c;
  std::int64_t ldc;
  bool add;
};

// Math::add(a, b, sum): sum += a * b, lane by lane.
template <typename Math, int R, int NV>
void micro(const Micro& g) {
  Vec acc[R][NV];
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    row[r] = g.x + g.rows[r];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[r][v] = g.add ? load(g.c + r * g.ldc + v * kLanes) : zero();
  }
  const float* b = g.b;
  const std::int64_t* const end = g.ks + g.k;
  for (const std::int64_t* ks = g.ks; ks != end; ++ks, b += NV * kLanes) {
    const std::int64_t at = *ks;
    Vec bv[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec a = splat(row[r][at]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) Math::add(a, bv[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(g.c + r * g.ldc + v * kLanes, acc[r][v]);
  }
}

struct MicroKernel {
  int rows;
  void (*run)(const Micro& g);
};

// micros[i]: for i + 1 vectors of columns.
template <int kVectors>
void run_panels(const simd_implicit_gemm::Product& p, const MicroKernel (&micros)[kVectors]) {
  std::int64_t k0 = 0;
  do {
    const std::int64_t kc = p.k - k0 < kPanelRows ? p.k - k0 : kPanelRows;
    simd_implicit_gemm::for_each_panel(kLanes, kVectors, p.n, [&](std::int64_t column, std::int64_t columns) {
      const std::int64_t vectors = (columns + kLanes - 1) / kLanes;
      const MicroKernel& kernel = micros[vectors - 1];
      for (std::int64_t r = 0; r < p.m; r += kernel.rows) {
        if (stops(p.points, kernel.rows * vectors * kLanes * kc)) return;
        kernel.run({p.x, p.rows + r, p.ks + k0, p.b + column * p.k + k0 * vectors * kLanes, kc, p.c + r * p.ldc + column, p.ldc,
                    p.add || k0 > 0});
      }
    });
    k0 += kc;
  } while (k0 < p.k && !has_stopped(p.points));
}

}  // namespace
}  // namespace evn::EVN_ISA
