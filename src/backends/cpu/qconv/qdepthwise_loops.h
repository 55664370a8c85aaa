// A depthwise convolution of bytes for one tile, summed as int32, which wraps: the input uint8, with its pads, the weight less its
// zero points, as floats, or two taps side by side as int16 or four as int8. Channels are lanes.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/qgemm/qgemm_loops.h"

namespace evn::simd_qdepthwise {

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
  std::int64_t run, pixel;     // taps of a line of the kernel, a pixel apart; run 1: not known
  const std::int32_t* weight;  // [group][weight_step]: a channel's float, int16 or int8, zeros up to whole blocks
  std::int64_t weight_step;
  const std::int32_t* start;  // per channel, in whole blocks; added to sums
  const float* float_start;   // the same as floats, where all sums are exact as such and weights are floats; else null
  const float* scale;         // for floats and bytes
  const float* bias;          // added to floats, in whole blocks; null: nothing
  std::int32_t zero;
  simd_qgemm::Output output;
  void* c;
  std::int64_t line_c, ldc;
  CancelPoints* points;  // null: none
};

// Depthwise products by planes: for one line of the output, or two where the stride is 1, four lines of the input at a time are
// interleaved, so that a channel's four bytes are what vpdpbusd multiplies at each position of the line, and at each tap of a line.
// Channels are whole kGranule; the lines of the input are read where they lie.
inline constexpr std::int64_t kGranule = 16;
inline constexpr int kMostQuads = 2;  // of lines

struct PlaneTile {
  const std::uint8_t* image;        // the first pixel
  const std::uint8_t* pad_line;     // what lies above and below, as the image's bytes
  std::uint8_t pad;                 // what lies left and right, as uint8
  std::uint8_t flip;                // 0x80 where the image is int8, else 0
  std::int64_t height, image_line;  // lines of the image, bytes of one
  std::int64_t kernel_lines, kernel_width;
  // Output line i reads from input line first_line + i * stride_y on, every dilation_y-th; where two lines are done, strides are 1.
  std::int64_t first_line, stride_y, dilation_y, lines;
  int together;  // 1 or 2 lines
  // A line of the planes: pads, bytes of the image from `from` on, pads.
  std::int64_t pads_before, from, inside, pads_after;
  std::uint8_t* planes;  // kMostQuads * 4 of them, each with room for two vectors behind
  std::int64_t plane;    // bytes from one to the next
  // Blocks of 64 sums: `blocks` for each of `positions`, of which each has `valid` bytes, and the line `all`.
  std::int64_t blocks, positions, valid, all;
  std::int64_t step_in, step_out;  // bytes from one position to the next
  std::int64_t tap;                // bytes from one tap of a line to the next
  const std::int8_t* weight;       // [block][tap of a line][quad][line of those together][4][64]
  const std::int32_t* start;       // per block 4 x 16, in the order of the planes
  const float* scale;
  std::int32_t zero;
  bool is_signed;  // the output
  std::uint8_t* c;
  std::int64_t line_c;
  CancelPoints* points;  // null: none
};

struct Loops {
  int group;  // taps side by side: 1, floats; 2; 4 gives bytes alone
  void (*run)(const Tile& tile);
  void (*run_planes)(const PlaneTile& tile);  // null where there is no vpdpbusd of 64 bytes
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_qdepthwise
