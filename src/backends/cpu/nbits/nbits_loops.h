// y = A W for a matrix W of 4 or 8 bits an element, with a scale, and maybe a zero point, for each block of k: the core of
// MatMulNBits. A few rows of A multiply W as it is read (run); for more rows panels of W become float32 (expand), and
// simd/packed_gemm multiplies by these. W is packed in panels of `width` columns:
//   elements   signed. 4 bits: [panel][k / 8][column] words of eight elements that follow each other in k, the first in the lowest
//   bits
//              or, with high_first, in the highest ones;
//              8 bits: [panel][k][column]
//   scales     float32, [panel][block][column]
//   zeros      int8 or float32, likewise; what is subtracted from an element
// A last panel has columns of zeros.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_nbits {

struct Weights {
  int bits;               // 4 or 8
  std::int64_t k, block;  // block: a multiple of 16
  const void* elements;
  const float* scales;
  const std::int8_t* zeros;  // null: 0, or float_zeros
  const float* float_zeros;

  [[gnu::always_inline]] std::int64_t blocks() const { return (k + block - 1) / block; }
  [[gnu::always_inline]] std::int64_t groups() const { return bits == 4 ? (k + 7) / 8 : k; }  // of elements that lie together
  [[gnu::always_inline]] std::int64_t panel_bytes(std::int64_t width) const { return groups() * width * (bits == 4 ? 4 : 1); }
};

struct Tile {
  Weights w;
  std::int64_t panel;  // the first
  std::int64_t m, n;   // m <= rows; n: columns from the first panel on
  const float* a;
  std::int64_t lda;
  float* c;
  std::int64_t ldc;
  const float* bias;      // of the tile's columns; nullable
  const float* residual;  // nullable
  std::int64_t ldr;
  const Epilogue* epilogue;  // nullable
  float* sums;               // m * blocks floats, where there are zero points
  CancelPoints* points;      // null: none
};

struct Loops {
  int width;        // columns of a panel
  int rows;         // most rows of a tile
  bool high_first;  // the order of 4 bits in a word
  void (*run)(const Tile& tile);
  // Rows [k0, k0 + kc) of `columns` columns of panel `panel`, as simd/packed_gemm packs a matrix of kc rows in panels of `nr`,
  // a divisor of `width`. k0 is a multiple of 8.
  void (*expand)(const Weights& w, std::int64_t panel, std::int64_t columns, std::int64_t nr, std::int64_t k0, std::int64_t kc,
                 float* to);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_nbits
