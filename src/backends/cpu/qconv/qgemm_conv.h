// What convolutions on qgemm/qgemm_loops.h and bfloat/bfloat_gemm_loops.h share: their geometry, and how they are cut into tiles. A
// tile is some lines, or some positions of a line, of an image, by output channels of one group.
#pragma once

#include "backends/cpu/qconv/byte_slab.h"
#include "device/kernel.h"

namespace evn {

// Taps of a line do not lie side by side.
bool is_by_tap(const OpDesc& d, const Shape& w);
std::int64_t conv_groups(const OpDesc& d);

// One of the tiles, in output positions, and what it begins with.
struct QgemmConvTile {
  struct Source {
    std::int64_t image, group, line, x;
    bool operator==(const Source&) const = default;
  };
  Source from;
  std::int64_t lines, width, column, columns;
  std::int64_t first;     // element of the input: the group's first channel of the image
  std::int64_t position;  // of the output
};

struct QgemmConv {
  ByteSlab slab;                         // of elements
  std::int64_t images, groups, columns;  // columns: output channels of a group
  bool by_tap, unpadded;
  // Extents of a tile, and how many there are.
  std::int64_t lines, width, tile_columns;
  std::int64_t line_tiles, width_tiles, column_tiles;

  // The geometry. A window of one pixel without pads or strides makes all images one long line.
  void set(const OpDesc& d, const Shape& w, std::int64_t pixel);
  // Tiles: about so many, whose slab has at most so many elements. Lines first, as they lie together; parts of a line where one is
  // more than that, or there is only one.
  void cut(std::int64_t pieces, std::int64_t k, std::int64_t most);

  std::int64_t positions() const;  // of the output, of all images
  std::int64_t tiles() const;
  QgemmConvTile tile(std::int64_t i) const;
  // Elements of the image, or of the slab, from one line to the next.
  std::int64_t line_step(bool in_place) const { return in_place ? slab.x.input * slab.pixel : slab.width * slab.channels; }
  // Where a tile's rows begin behind `first`, when they are read in place.
  std::int64_t in_image(const QgemmConvTile& t) const {
    return (t.from.line * slab.y.stride * slab.x.input + t.from.x * slab.x.stride) * slab.pixel;
  }
  // Where rows of A lie, from the first one on, and their segments.
  template <typename Tile>
  void set_rows(bool in_place, std::int64_t segments, std::int64_t* offsets, Tile* t) const {
    const std::int64_t pixel = in_place ? slab.pixel : slab.channels, line = line_step(in_place);
    t->lda = pixel * (in_place ? slab.x.stride : slab.step_x());
    t->line_step = line * (in_place ? slab.y.stride : slab.step_y());
    const std::int64_t taps = by_tap ? slab.x.kernel : 1;
    for (std::int64_t i = 0; i < segments; ++i) offsets[i] = i / taps * slab.y.dilation * line + i % taps * slab.x.dilation * pixel;
    t->offsets = offsets;
  }
};

}  // namespace evn
