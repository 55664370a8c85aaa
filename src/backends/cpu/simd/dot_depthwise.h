// A depthwise convolution of bytes for one tile, summed as int32, which wraps: the input uint8, with its pads, the weight less its
// zero points, two taps side by side as int16 or four as int8. Channels are lanes.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/dot.h"

namespace evn::simd_dot_depthwise {

inline constexpr int kMostTaps = 64;
inline constexpr std::int64_t kBlock = 64;  // channels, of which there are whole blocks in what is packed for them

// Where what belongs to a channel stands in its block where four taps stand together: as bytes come to stand when those of four
// vectors are interleaved in parts of 16.
constexpr std::int64_t quad_place(std::int64_t channel) {
  const std::int64_t in_block = channel % kBlock;
  return channel - in_block + in_block / 4 % 4 * 16 + in_block / 16 * 4 + in_block % 4;
}

struct Tile {
  // Position (line, x) begins at a + line * line_step + x * step; its taps stand at these offsets, whole groups of them, of which
  // the last may have weights of 0. Up to a vector of bytes behind the last channel of a tap is read.
  const std::uint8_t* a;
  std::int64_t lines, width, channels;
  std::int64_t line_step, step;
  const std::int64_t* offsets;
  std::int64_t groups;
  const std::int32_t* weight;   // [group][weight_step]: a channel's int16 or int8, zeros up to whole blocks
  std::int64_t weight_step;
  const std::int32_t* start;    // per channel, in whole blocks; added to sums
  const float* scale;           // null: the output is int32
  std::int32_t zero;
  simd_dot::Output output;      // no floats
  void* c;
  std::int64_t line_c, ldc;
};

struct Loops {
  int group;                    // taps side by side: 2; 4 gives no int32
  void (*run)(const Tile& tile);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_dot_depthwise
