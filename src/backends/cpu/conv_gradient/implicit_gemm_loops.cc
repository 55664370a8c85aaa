#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"

#include "backends/cpu/conv_gradient/implicit_gemm_micro.h"
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

#if !defined(__AVX512F__)
inline void add_product(Vec a, Vec b, Vec& c) { c = fma(a, b, c); }
#endif

struct FloatMath {
  static void add(Vec a, Vec b, Vec& sum) { add_product(a, b, sum); }
};

template <int R, int NV>
constexpr MicroKernel kMicro = {R, micro<FloatMath, R, NV>};

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr MicroKernel kMicros[kVectors] = {kMicro<8, 1>, kMicro<8, 2>, kMicro<8, 3>, kMicro<6, 4>};
#else
constexpr MicroKernel kMicros[kVectors] = {kMicro<6, 1>, kMicro<6, 2>};
#endif

void run(const Product& p) { run_panels(p, kMicros); }

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
