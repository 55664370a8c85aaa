// The transforms of the derivative of Winograd's F(4 x 4, 3 x 3) by the filters: dw = G^T [sum over tiles of (B^T d B) (A dy A^T)]
// G, with the matrices of conv/winograd_loops.h, whose transform of pixels makes B^T d B.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_winograd_gradient {

// dy of a block, channels last: [image][y][x][channel], whose tiles are numbered (image * tiles_y + y) * tiles_x + x.
struct Gradients {
  const float* dy;
  std::int64_t height, width, pixel;  // pixel: floats from one to the next
  std::int64_t tiles_y, tiles_x;
  std::int64_t channels;  // from dy on
};

struct Loops {
  // Tiles [first, first + count): z[position][tile][channel], `step` floats from one position and `row`, whole vectors, from one
  // tile to the next; 0 beyond the channels.
  void (*gradients)(const Gradients& g, std::int64_t first, std::int64_t count, float* z, std::int64_t step, std::int64_t row);
  // u[position][row][column], rows of `width` floats, whole vectors, to the taps w[row][9][column]; `add`: to what is there.
  void (*filters)(const float* u, std::int64_t step, std::int64_t rows, std::int64_t width, bool add, float* w);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_winograd_gradient
