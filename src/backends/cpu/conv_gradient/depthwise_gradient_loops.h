// What the derivatives of a depthwise Conv come down to, on planes that are padded copies: sums of shifted planes, and dot products
// of a plane with shifted ones.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn::simd_depthwise_gradient {

// to[i] = sum over t of weights[t] x[offsets[t] + i], i < n: a chain of multiply-adds in the order of t.
struct ShiftedSum {
  const float* x;
  const std::int64_t* offsets;
  const float* weights;
  std::int64_t taps, n;
  float* to;             // whole vectors are written
  CancelPoints* points;  // null: none
};

// sums[t] += y[i, j] x[offsets[t] + i * x_row + j], where rows i begin `y_row` floats apart. Each sum is a vector, whose lanes take
// columns in turns. There are kTaps offsets for each begun group of so many taps; what is beyond `taps` means nothing.
struct ShiftedDots {
  const float* x;
  const std::int64_t* offsets;
  std::int64_t taps, x_row;
  const float* y;
  std::int64_t y_row, rows, columns;
  float* sums;           // [taps, with whole groups][lanes]
  CancelPoints* points;  // null: none
};
inline constexpr std::int64_t kTaps = 9;

struct Loops {
  int lanes;
  void (*sum)(const ShiftedSum&);
  void (*dots)(const ShiftedDots&);
  // to[i] = the sum of the lanes of sums[i].
  void (*sum_lanes)(const float* sums, std::int64_t count, float* to);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_depthwise_gradient
