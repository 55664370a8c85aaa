// C = A B for one tile, float32, where the rows of A are read as they lie (a matrix, or the pixels of a channels-last image under a
// convolution's window) and B is a packed constant: the core of MatMul, Gemm and channels-last Conv. What follows the product, a
// bias, a residual and bounds, is applied in registers. Each element of C is the sum of its blocks of k, each of which is one chain
// of multiply-adds in the order of k; k alone decides on the blocks, so that no tile changes a bit of the result.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_packed_gemm {

// A window over a channels-last image: k is (ky, kx, channel), a row of A is an output position (image, y, x).
struct Window {
  std::int64_t height, width, channels;  // of the input; channels: those of a group, of k
  std::int64_t pixel;                    // floats from one pixel to the next: all channels
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;
  std::int64_t dilation_h, dilation_w;
  std::int64_t pad_top, pad_left;
  std::int64_t out_height, out_width;
  bool is_padded =
      false;  // the pads are there, copied with the image: panels of rows end with the line, so that none are copied again
};

// B, k x n, packed: panels of `nr` columns, [panel][k][column]; the last panel is as wide as whole vectors need to be, and the
// columns beyond n are 0. A tile begins at a panel.
struct Tile {
  std::int64_t m, n, k;
  const float* a;  // the tile's first row; with a window: the first image
  std::int64_t lda;
  const Window* window;    // null: a matrix
  std::int64_t first_row;  // with a window: the number of row 0 among all output positions
  const float* b;          // the tile's first panel
  float* c;
  std::int64_t ldc;
  const float* init;                   // start values: init[row * init_row + column * init_column] * init_scale; null: 0
                                       // C itself, with ldc, 1 and 1: sums go on from what is there
  std::int64_t init_row, init_column;  // init_column is 0 or 1
  float init_scale;
  const float* residual;  // added to the sum before the epilogue; null: none
  std::int64_t ldr;
  const Epilogue* epilogue;  // nullable
  bool far;                  // C is far away, as large outputs are
  bool large_l2;             // B is fetched ahead little by little, as L2 has room for it to wait there
  float* buffer;             // buffer_floats, aligned to 64
  CancelPoints* points;      // null: none
};

struct Loops {
  int mr;  // rows of a micro-tile
  int nr;  // columns of a panel
  int lanes;
  std::int64_t mc, kc;  // blocks: rows, and k
  void (*run)(const Tile& tile);
};
const Loops& loops(Isa isa);

// What a tile with a window needs to copy pixels to; others need nothing.
static inline std::int64_t buffer_floats(const Loops& l, std::int64_t m, std::int64_t k) {
  const std::int64_t rows = m < l.mc ? m : l.mc;
  return rows * ((k < l.kc ? k : l.kc) + 32);
}

}  // namespace evn::simd_packed_gemm
