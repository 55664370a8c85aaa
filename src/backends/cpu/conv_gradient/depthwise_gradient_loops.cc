#include "backends/cpu/conv_gradient/depthwise_gradient_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_depthwise_gradient::kTaps;
using simd_depthwise_gradient::ShiftedDots;
using simd_depthwise_gradient::ShiftedSum;

constexpr int kTogether = 4;  // vectors of a sum, so that chains of multiply-adds do not wait for each other

// Reads and writes exactly n lanes where Vectors is 1.
template <int Vectors>
inline void sum_at(const ShiftedSum& s, std::int64_t i, std::int64_t n) {
  Vec acc[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) acc[v] = zero();
  for (std::int64_t t = 0; t < s.taps; ++t) {
    const Vec w = splat(s.weights[t]);
    const float* const x = s.x + s.offsets[t] + i;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) acc[v] = fma(w, Vectors > 1 ? load(x + v * kLanes) : load_some(x, n), acc[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) store(s.to + i + v * kLanes, acc[v]);
}

void sum(const ShiftedSum& s) {
  std::int64_t i = 0;
  for (; i + kTogether * kLanes <= s.n; i += kTogether * kLanes) {
    if (stops(s.points, kTogether * kLanes * (s.taps + 1))) return;
    sum_at<kTogether>(s, i, kTogether * kLanes);
  }
  for (; i < s.n; i += kLanes) sum_at<1>(s, i, s.n - i);
}

void dots(const ShiftedDots& d) {
  for (std::int64_t first = 0; first < d.taps; first += kTaps) {
    float* const sums = d.sums + first * kLanes;
    const float* x[kTaps];
    Vec acc[kTaps];
#pragma GCC unroll 9
    for (int t = 0; t < kTaps; ++t) {
      x[t] = d.x + d.offsets[first + t];
      acc[t] = load(sums + t * kLanes);
    }
    for (std::int64_t i = 0; i < d.rows; ++i) {
      if (stops(d.points, kTaps * d.columns)) return;
      const float* const y = d.y + i * d.y_row;
      std::int64_t at = i * d.x_row, j = 0;
      for (; j + kLanes <= d.columns; j += kLanes, at += kLanes) {
        const Vec v = load(y + j);
#pragma GCC unroll 9
        for (int t = 0; t < kTaps; ++t) acc[t] = fma(v, load(x[t] + at), acc[t]);
      }
      const std::int64_t left = d.columns - j;
      if (left == 0) continue;
      const Vec v = load_n(y + j, left);
#pragma GCC unroll 9
      for (int t = 0; t < kTaps; ++t) acc[t] = fma(v, load_n(x[t] + at, left), acc[t]);
    }
#pragma GCC unroll 9
    for (int t = 0; t < kTaps; ++t) store(sums + t * kLanes, acc[t]);
  }
}

void sum_all_lanes(const float* sums, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = sum_lanes(load(sums + i * kLanes));
}

}  // namespace

extern const simd_depthwise_gradient::Loops loops_depthwise_gradient;
const simd_depthwise_gradient::Loops loops_depthwise_gradient = {
    .lanes = kLanes, .sum = sum, .dots = dots, .sum_lanes = sum_all_lanes};

}  // namespace evn::EVN_ISA
