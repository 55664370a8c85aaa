// Winograd's minimal filtering F(4 x 4, 3 x 3) and F(2 x 2, 3 x 3) for channels-last images: the transforms of pixels, filters and
// products (Lavin and Gray, 2015, "Fast algorithms for convolutional neural networks"). An output tile of 4 x 4 comes of 6 x 6
// pixels by 36 multiplications for each pair of channels where the sum as it is written takes 144, one of 2 x 2 of 4 x 4 by 16
// where it takes
// 36. The points of the first are 0, +-sqrt(1/2), +-sqrt(2) and infinity, whose matrices have smaller numbers than those of 0, +-1,
// +-2 and lose less to rounding; those of the second 0, +-1 and infinity.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/epilogue.h"

namespace evn::simd_winograd {

// Outputs of a tile in each direction, inputs under it in each direction, and products.
inline constexpr int kLargeTile = 4, kSmallTile = 2;
constexpr int patch_of(int tile) { return tile + 2; }
constexpr int positions_of(int tile) { return patch_of(tile) * patch_of(tile); }

inline constexpr float kRoot = 1.41421356237309505f;       // sqrt(2)
inline constexpr float kHalfRoot = 0.707106781186547524f;  // sqrt(1/2)

// Floats from one position to the next, of which a tile reads or writes each: an odd number of lines, else they share few sets of
// L1.
constexpr std::int64_t step_of(std::int64_t floats) { return ((floats + 15) / 16 | 1) * 16; }

struct Geometry {
  std::int64_t height, width, channels;           // input
  std::int64_t pixel, out_pixel, residual_pixel;  // floats from one pixel to the next
  std::int64_t out_height, out_width, out_channels;
  std::int64_t pad_top, pad_left;
  std::int64_t tiles_y, tiles_x;  // of an image; tile number = (image * tiles_y + y) * tiles_x + x
};

// What becomes of the products.
struct Finish {
  float* y;                   // the first image, channel 0
  const float* residual;      // the first image, channel 0; null: none
  const float* bias;          // per output channel; null: none
  const Epilogue* epilogue;   // nullable
  std::int64_t first, count;  // output channels
};

// For one size of tile.
struct Transforms {
  // Tiles [first, first + count): v[position][tile][channel], `step` floats from one position to the next.
  void (*pixels)(const Geometry& g, const float* x, std::int64_t first, std::int64_t count, float* v, std::int64_t step);
  // The filters w[channel][3][3][column] to u[channel][column], `width` columns each, whole vectors; `step` floats from one
  // position to the next.
  void (*filters)(const float* w, std::int64_t channels, std::int64_t width, float* u, std::int64_t step);
  // Tiles [first, first + count) from m[position][tile][f.count].
  void (*products)(const Geometry& g, const float* m, std::int64_t step, std::int64_t first, std::int64_t count, const Finish& f);
};

struct Loops {
  Transforms large, small;
  const Transforms& of(int tile) const { return tile == kLargeTile ? large : small; }
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_winograd
