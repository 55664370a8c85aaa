// C = A B for one tile, float32, with fused start value and epilogue: the core of Conv, ConvTranspose, Gemm and MatMul. B is read
// in micro-panels of `nr` columns and blocks of `kc` rows, packed into a buffer that stays in L1 unless it was packed before; each
// element of C is the sum of its blocks, each of which is one chain of multiply-adds in the order of k, so that neither the tile
// nor the width of a micro-tile changes a bit of the result, and rounding errors do not grow with k.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_gemm {

// The image that a convolution slides over, as the matrix B: row k is (channel, kz, ky, kx), column n is an output position (z, y,
// x).
struct Patches {
  std::int64_t height, width;  // of one input plane
  std::int64_t kernel_h, kernel_w;
  std::int64_t stride_h, stride_w;
  std::int64_t dilation_h, dilation_w;
  std::int64_t pad_top, pad_left;
  std::int64_t out_width;
  // Of volumes; images are one plane deep.
  std::int64_t depth = 1, kernel_d = 1, stride_d = 1, dilation_d = 1, pad_front = 0;
  std::int64_t out_height = INT64_MAX;

  std::int64_t taps() const { return kernel_d * kernel_h * kernel_w; }
};

enum class AKind : std::int32_t {
  kPacked,   // panels of `mr` rows: [ceil(m / mr)][k][mr], rows beyond m are 0
  kRows,     // row-major, lda apart
  kColumns,  // the transpose is row-major
};
enum class BKind : std::int32_t {
  kPacked,   // panels of `nr` columns: [ceil(n / nr)][k][nr], columns beyond n are 0
  kRows,     // row-major, ldb apart
  kColumns,  // the transpose is row-major
  kPatches,  // patches of an image
};

struct Tile {
  std::int64_t m, n, k;
  AKind a_kind;
  BKind b_kind;
  const float* a;
  std::int64_t lda;
  const float* b;  // kPacked: the tile's first panel; kRows, kColumns: its first column; patches: the group's first channel
  std::int64_t ldb;
  const Patches* patches;
  std::int64_t first_column;  // patches: the output position of column 0
  float* c;
  std::int64_t ldc;
  const float* init;                   // start values: init[row * init_row + column * init_column] * init_scale; null: 0
  std::int64_t init_row, init_column;  // init_column is 0 or 1
  float init_scale;
  const Epilogue* epilogue;  // nullable
  float* buffer;             // buffer_floats(m of a tile with kColumns A, else 0), aligned to 64
  CancelPoints* points;      // null: none
};

struct Loops {
  int mr;
  int nr;
  int kc;
  void (*run)(const Tile& tile);
};
const Loops& loops(Isa isa);

static inline std::int64_t buffer_floats(const Loops& l, std::int64_t columns_m) {
  return static_cast<std::int64_t>(l.kc + 2) * l.nr + (columns_m + l.mr) * l.kc;
}

}  // namespace evn::simd_gemm
