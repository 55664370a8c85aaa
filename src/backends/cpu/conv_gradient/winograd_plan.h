// What the kernels of Winograd's F(4 x 4, 3 x 3) in training share: which convolutions they take, and blocks of output tiles.
#pragma once

#include <cstdint>

#include "backends/cpu/conv/winograd_loops.h"
#include "backends/cpu/simd/cancel_points.h"
#include "device/kernel.h"
#include "ops/infra/window.h"

namespace evn::winograd {

inline constexpr int kTile = simd_winograd::kLargeTile;  // outputs in each direction
inline constexpr int kPositions = simd_winograd::positions_of(kTile);
using simd_winograd::step_of;

// Reason why a derivative of a Conv of `x` to `y` by input `weight` of the node is not computed by these kernels, or null.
Refusal refuse(const OpDesc& d, int weight, const Shape& x, const Shape& y);
// Reason why a Conv is not, or null. The number of images does not count, so that each image has the same bits in any batch.
Refusal refuse_conv(const OpDesc& d);
// Why a kernel whose products are of bfloat16 leaves them to these, which are float32.
inline constexpr Refusal kIsFaster = "float32 by Winograd is faster";

// Output tiles of some images.
inline double count_tiles(std::int64_t images, std::int64_t height, std::int64_t width) {
  return static_cast<double>(images) * static_cast<double>(ceil_div(height, std::int64_t{kTile})) *
         static_cast<double>(ceil_div(width, std::int64_t{kTile}));
}
// What it costs for each position, in multiply-adds of a product of matrices, to transform the pixels and the products of so many
// tiles, and to transform the filters and read them again.
inline double pixel_work(std::int64_t channels, std::int64_t outputs, double tiles) {
  return 24 * tiles * static_cast<double>(channels + outputs);
}
inline double filter_work(std::int64_t channels, std::int64_t outputs) {
  return 20 * static_cast<double>(channels) * static_cast<double>(outputs);
}

// Some lines of the output tiles of an image, or all of those of some images.
struct Block {
  std::int64_t image, images, row, rows;  // rows of the output
};

// Tiles of a block: their pixels and products are to stay in L2, or, with many filters, be half as large as these, which each block
// reads again.
std::int64_t block_tiles(std::int64_t channels, std::int64_t outputs);

struct Blocks {
  std::int64_t images, height, width;     // of the output
  std::int64_t tiles_y, tiles_x;          // of an image
  std::int64_t block_images, block_rows;  // of tiles
  std::int64_t image_blocks, row_blocks;

  // With `most` tiles or so in each.
  Blocks(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t most, std::int64_t most_images);
  Blocks() = default;

  std::int64_t count() const { return image_blocks * row_blocks; }
  Block at(std::int64_t i) const;
  std::int64_t tiles_of(const Block& b) const { return b.images * ceil_div(b.rows, std::int64_t{kTile}) * tiles_x; }
  std::int64_t most_tiles() const { return block_images * block_rows * tiles_x; }
  std::int64_t most_rows() const { return block_images * block_rows * kTile; }           // of outputs
  std::int64_t most_in_rows() const { return block_images * (block_rows * kTile + 2); }  // that they are made of
};

// What the pixels of a block are for simd_winograd: `v` and `h` are the axes of the convolution. Beside the output's: its lines of
// the input, from `begin` on.
struct Lines {
  simd_winograd::Geometry geometry;
  std::int64_t begin;
};
Lines lines_of(const Block& block, const WindowAxis& v, const WindowAxis& h, std::int64_t channels);

// Some channels of some lines of images, as they lie: `from` is the first channel's first line of the first image.
struct Planes {
  const float* from;
  std::int64_t image_step, plane;  // floats
  std::int64_t images, channels;
  std::int64_t positions;  // that follow each other in a plane
};

// Turns them to channels last, [image][position][channel]. Returns false if the run is to stop.
bool turn(Isa isa, const Planes& planes, float* to, CancelPoints* points);

}  // namespace evn::winograd
