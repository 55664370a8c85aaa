// y = A W for a matrix W of 4 or 8 bits an element and rows of A that are quantized block by block: the core of MatMulNBits with an
// accuracy_level of 4. Sums over a block are whole numbers, the same on every instruction set; each is scaled by both scales and
// added to a float. W is packed in panels of `width` columns:
//   elements   unsigned. 4 bits: [panel][k / 8][column] words of eight elements: byte i has k + i in its low half, k + 4 + i in its
//   high one;
//              8 bits: [panel][k / 4][column] words of four elements that follow each other in k
//   scales     float32, or float16 where that holds all of them exactly, [panel][block][column]
//   zeros      uint8 or float32, likewise; what is subtracted from an element
// A last panel has columns of zeros, a last block elements that count nothing because those of A are 0.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_nbits_dot {

struct Weights {
  int bits;                    // 4 or 8
  std::int64_t block, blocks;  // block: a multiple of 16
  const void* elements;
  const void* scales;
  bool half_scales;           // of float16
  const std::uint8_t* zeros;  // null: 2^(bits - 1), or float_zeros
  const float* float_zeros;

  std::int64_t panel_bytes(std::int64_t width) const { return blocks * block * width / 8 * bits; }
};

// Rows of A: int8, block * blocks of them, and of each block its scale and the sum of its numbers.
struct Rows {
  const std::int8_t* numbers;
  const float* scales;
  const std::int32_t* sums;
};

struct Tile {
  Weights w;
  std::int64_t panel;  // the first
  std::int64_t m, n;   // n: columns from the first panel on
  Rows a;
  float* c;
  std::int64_t ldc;
  const float* bias;      // of the tile's columns; nullable
  const float* residual;  // nullable
  std::int64_t ldr;
  const Epilogue* epilogue;  // nullable
  CancelPoints* points;      // null: none
};

struct Loops {
  int width;               // columns of a panel
  bool takes_half_scales;  // whether scales may be float16
  // A row of k floats as numbers between -127 and 127 with a scale for each block: its largest magnitude / 127. Elements beyond k
  // are 0.
  void (*quantize)(const float* a, std::int64_t k, std::int64_t block, std::int8_t* numbers, float* scales, std::int32_t* sums);
  void (*run)(const Tile& tile);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_nbits_dot
