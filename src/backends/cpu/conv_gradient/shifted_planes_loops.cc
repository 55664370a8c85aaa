#include "backends/cpu/conv_gradient/shifted_planes_loops.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_shifted_planes::kTaps;
using simd_shifted_planes::ShiftedDots;
using simd_shifted_planes::ShiftedSum;

// Vectors of a sum, so that chains of multiply-adds do not wait for each other.
constexpr int kTogether = 4;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTogetherOfAll = 4;  // of kOutputs sums
#else
constexpr int kTogetherOfAll = 2;
#endif

constexpr std::int64_t kTapsAtOnce = 512;  // between two cancellation points; what they read stays in L1

// Reads exactly n lanes where Vectors is 1. `goes_on`: the sums begin with what is there.
template <int Outputs, int Vectors>
inline void sum_at(const ShiftedSum& s, std::int64_t i, std::int64_t n, bool goes_on) {
  Vec acc[Outputs][Vectors];
#pragma GCC unroll 4
  for (int o = 0; o < Outputs; ++o) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      acc[o][v] = goes_on ? load(s.to + o * s.to_step + i + v * kLanes) : s.start == nullptr ? zero() : splat(s.start[o]);
    }
  }
  const float* w = s.weights;
  for (std::int64_t t = 0; t < s.taps; ++t, w += s.weight_step) {
    const float* const x = s.x + s.offsets[t] + i;
    Vec xs[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) xs[v] = Vectors > 1 ? load(x + v * kLanes) : load_some(x, n);
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) {
      const Vec weight = splat(w[o]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) acc[o][v] = fma(weight, xs[v], acc[o][v]);
    }
  }
#pragma GCC unroll 4
  for (int o = 0; o < Outputs; ++o) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(s.to + o * s.to_step + i + v * kLanes, acc[o][v]);
  }
}

template <int Outputs, int Together>
void sum(const ShiftedSum& all) {
  ShiftedSum s = all;
  std::int64_t first = 0;
  do {
    s.taps = all.taps - first < kTapsAtOnce ? all.taps - first : kTapsAtOnce;
    s.offsets = all.offsets + first;
    s.weights = all.weights + first * s.weight_step;
    for (std::int64_t i = 0; i < s.n;) {
      const bool is_wide = s.n - i >= Together * kLanes;
      if (stops(s.points, (is_wide ? Together : 1) * kLanes * Outputs * (s.taps + 1))) return;
      if (is_wide) {
        sum_at<Outputs, Together>(s, i, Together * kLanes, first > 0);
      } else {
        sum_at<Outputs, 1>(s, i, s.n - i, first > 0);
      }
      i += (is_wide ? Together : 1) * kLanes;
    }
    first += s.taps;
  } while (first < all.taps);
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

extern const simd_shifted_planes::Loops loops_shifted_planes;
const simd_shifted_planes::Loops loops_shifted_planes = {.lanes = kLanes,
                                                         .sum = sum<1, kTogether>,
                                                         .sums = sum<simd_shifted_planes::kOutputs, kTogetherOfAll>,
                                                         .dots = dots,
                                                         .sum_lanes = sum_all_lanes};

}  // namespace evn::EVN_ISA
