// y = A W for a matrix W of 4 or 8 bits an element, with a scale, and maybe a zero point, for each block of k: the core of
// MatMulNBits. A few rows of A multiply W as it is read (run); for more rows (run_many) the elements of some rows of a panel become
// float32 first, and all rows of A are multiplied by these. Both give a row the same bits. W is packed in panels of `width`
// columns:
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
  std::int64_t m, n;   // m <= rows for run; n: columns from the first panel on
  const float* a;
  std::int64_t lda;
  float* c;
  std::int64_t ldc;
  const float* bias;      // of the tile's columns; nullable
  const float* residual;  // nullable
  std::int64_t ldr;
  const Epilogue* epilogue;  // nullable
  float* sums;               // m * blocks floats, if there are zero points
  float* unpacked;           // run_many: unpacked_floats
  CancelPoints* points;      // null: none
};

struct Loops {
  int width;        // columns of a panel
  int rows;         // most rows of a tile of run
  bool high_first;  // the order of 4 bits in a word
  void (*run)(const Tile& tile);
  // Scratch memory of run_many, in floats.
  std::int64_t (*unpacked_floats)(const Weights& w);
  void (*run_many)(const Tile& tile);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_nbits
