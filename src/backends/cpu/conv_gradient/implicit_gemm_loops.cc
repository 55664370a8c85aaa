#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"

#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

using simd_implicit_gemm::Cut;
using simd_implicit_gemm::kRows;
using simd_implicit_gemm::Product;
using simd_implicit_gemm::Spread;

// Accumulators, a row of B and a broadcast fit the register file. Eight rows by less than a wide panel have as many sums in flight.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif
constexpr std::int64_t kKc = 256;  // rows of a panel of B that stay in L2

#if !defined(__AVX512F__)
inline void add_product(Vec a, Vec b, Vec& c) { c = fma(a, b, c); }
#endif

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

template <int R, int NV>
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
      for (int v = 0; v < NV; ++v) add_product(a, bv[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(g.c + r * g.ldc + v * kLanes, acc[r][v]);
  }
}

using MicroFn = void (*)(const Micro&);
struct MicroKernel {
  int rows;
  MicroFn run;
};
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr MicroKernel kMicros[kVectors] = {{8, micro<8, 1>}, {8, micro<8, 2>}, {8, micro<8, 3>}, {6, micro<6, 4>}};
#else
constexpr MicroKernel kMicros[kVectors] = {{6, micro<6, 1>}, {6, micro<6, 2>}};
#endif

void run(const Product& p) {
  std::int64_t k0 = 0;
  do {
    const std::int64_t kc = p.k - k0 < kKc ? p.k - k0 : kKc;
    simd_implicit_gemm::for_each_panel(kLanes, kVectors, p.n, [&](std::int64_t column, std::int64_t columns) {
      const std::int64_t vectors = (columns + kLanes - 1) / kLanes;
      const MicroKernel& kernel = kMicros[vectors - 1];
      for (std::int64_t r = 0; r < p.m; r += kernel.rows) {
        if (stops(p.points, kernel.rows * vectors * kLanes * kc)) return;
        kernel.run({p.x, p.rows + r, p.ks + k0, p.b + column * p.k + k0 * vectors * kLanes, kc, p.c + r * p.ldc + column, p.ldc,
                    p.add || k0 > 0});
      }
    });
    k0 += kc;
  } while (k0 < p.k && !has_stopped(p.points));
}

void copy_stepped(float* to, const float* from, std::int64_t n, std::int64_t step) {
  if (step == 1) return copy_over(to, from, n);
  if (step == 2) return copy_even_over(to, from, n);
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * step];
}

void cut(const Cut& c, const float* plane, float* to, CancelPoints* points) {
  std::int64_t left = c.column >= 0 ? 0 : (c.step - 1 - c.column) / c.step;
  if (left > c.columns) left = c.columns;
  std::int64_t right = c.column >= c.width ? 0 : (c.width - 1 - c.column) / c.step + 1;  // columns from there on are outside
  right = right > c.columns ? c.columns : right < left ? left : right;
  for (std::int64_t i = 0; i < c.rows; ++i, to += c.columns) {
    if (stops(points, c.columns + kLanes)) return;
    const std::int64_t row = c.row + i;
    if (row < 0 || row >= c.height) {
      zero_over(to, c.columns);
      continue;
    }
    if (left > 0) zero_over(to, left);
    if (left < right) copy_stepped(to + left, plane + row * c.width + c.column + left * c.step, right - left, c.step);
    if (right < c.columns) zero_over(to + right, c.columns - right);
  }
}

void spread(const Spread& s, const float* from, float* to, CancelPoints* points) {
  for (std::int64_t i = 0; i < s.rows; ++i, from += s.from_row, to += s.to_row) {
    if (stops(points, 2 * s.columns)) return;
    std::int64_t j = 0;
    if (s.to_step == 1) {
      for (; j + kLanes <= s.columns; j += kLanes) store(to + j, load(from + j));
      if (j < s.columns) store_n(to + j, load_n(from + j, s.columns - j), s.columns - j);
      continue;
    }
    for (; j < s.columns; ++j) to[j * s.to_step] = from[j];
  }
}

}  // namespace

extern const simd_implicit_gemm::Loops loops_implicit_gemm;
const simd_implicit_gemm::Loops loops_implicit_gemm = {
    .lanes = kLanes, .panel_vectors = kVectors, .run = run, .cut = cut, .spread = spread};

}  // namespace evn::EVN_ISA
