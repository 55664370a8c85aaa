// A depthwise convolution of bytes for one tile, summed as int32, which wraps: the input uint8, with its pads, the weight less its zero
// points as int16, two taps side by side. Channels are lanes.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/dot.h"

namespace evn::simd_dot_depthwise {

inline constexpr int kMostPairs = 32;  // of taps

struct Tile {
  // Position (line, x) begins at a + line * line_step + x * step; its taps stand at these offsets, an even number, of which the last may
  // have weights of 0. Up to a vector of bytes behind the last channel of a tap is read.
  const std::uint8_t* a;
  std::int64_t lines, width, channels;
  std::int64_t line_step, step;
  const std::int64_t* offsets;
  std::int64_t pairs;
  const std::int32_t* weight;   // [pair][weight_step]: two int16 a channel, zeros up to whole vectors
  std::int64_t weight_step;
  const std::int32_t* start;    // per channel, in whole vectors; added to sums
  const float* scale;           // null: the output is int32
  std::int32_t zero;
  simd_dot::Output output;      // no floats
  void* c;
  std::int64_t line_c, ldc;
};

struct Loops {
  int lanes;
  void (*run)(const Tile& tile);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_dot_depthwise
