// Convolution in groups of few channels, as many in as out, of values that lie channels last: a vector has the channels of several
// groups, or some of one. For each channel of a group, that of each of the vector's groups is spread over the group's lanes, and
// multiplied by the filters of all the vector's outputs at once.
#pragma once

#include <cstdint>

#include "backends/cpu/conv/depthwise_loops.h"

namespace evn::simd_small_groups {

inline constexpr int kTaps = 3;  // of a row, side by side; strides are 1 or 2

// Some rows and channels of the output of one image.
struct Tile {
  const simd_depthwise::Geometry* geometry;
  const float* x;  // of the image
  float* y;        // of the image
  std::int64_t row_begin, row_end;
  std::int64_t channel, channels;  // whole vectors
  std::int64_t group;              // channels of one: a divisor of the lanes, or a multiple
  const float* weight;             // packed: [vector of outputs][row of taps][channel of the group][kTaps][lane]
  const float* bias;               // per channel; may be null
  const Epilogue* epilogue;
  CancelPoints* points;
};

struct Loops {
  int lanes;
  // Each output is a chain of multiply-adds over its taps inside the image, from its bias on, in an order that the kernel's size
  // and the group alone decide. Null where the instruction set has no permutation by a vector of indices.
  void (*run)(const Tile&);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_small_groups
