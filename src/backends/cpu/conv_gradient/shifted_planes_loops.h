// What convolutions of few output channels and depthwise ones come down to, and their derivatives, on planes that are padded
// copies: sums of shifted planes, and dot products of a plane with shifted ones.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"

namespace evn::simd_shifted_planes {

// to[o * to_step + i] = start[o] + sum over t of weights[t * weight_step + o] x[offsets[t] + i], i < n: a chain of multiply-adds in
// the order of t. There are one or kOutputs outputs o.
struct ShiftedSum {
  const float* x;
  const std::int64_t* offsets;
  const float* weights;
  std::int64_t weight_step, taps, n;
  const float* start;  // null: 0
  float* to;           // whole vectors are written
  std::int64_t to_step;
  CancelPoints* points;  // null: none
};
inline constexpr int kOutputs = 4;

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
  void (*sum)(const ShiftedSum&);   // one output
  void (*sums)(const ShiftedSum&);  // kOutputs of them
  void (*dots)(const ShiftedDots&);
  // to[i] = the sum of the lanes of sums[i].
  void (*sum_lanes)(const float* sums, std::int64_t count, float* to);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_shifted_planes
