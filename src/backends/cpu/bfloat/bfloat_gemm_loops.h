// C = A B for one tile of bfloat16 or float16, summed as float32: A's rows are read as they lie, B is a packed constant. What
// follows the product, a bias, a residual and steps, is float32 too. Each sum is one chain over k whose order depends on k and the
// instruction set alone. qgemm/qgemm_loops.h is the same for bytes: a pair of bfloat16 has the place of a quad of these.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "backends/cpu/simd/cancel_points.h"
#include "core/epilogue.h"

namespace evn::simd_bfloat_gemm {

inline constexpr int kMostSegments = 64;
// Elements behind a row of A that may be read. They are multiplied by 0, and must be finite.
inline constexpr std::int64_t kOverread = 32;

// B, k x n, packed: blocks of `lanes` columns, [block][segment][unit of k][column][k], where a segment is padded with zeros to a
// multiple of `k_step`; columns beyond n are 0. A tile begins at a block.
struct Tile {
  // Row (line, x) of A begins at a + line * line_step + x * lda; its k stand in `segments` runs, at these offsets, `padded` long in
  // B.
  const std::uint16_t* a;
  std::int64_t lines, width;
  std::int64_t line_step, lda;
  const std::int64_t* offsets;
  std::int64_t segments, padded;
  const std::uint16_t* b;
  std::int64_t n;
  const float* init;  // added: init[row * init_row + column * init_column] * init_scale, row = line * width + x; null: 0
  std::int64_t init_row, init_column;  // init_column is 0 or 1
  float init_scale;
  const void* residual;  // added to that, before the epilogue; null: none
  bool residual_is_bfloat;
  std::int64_t line_r, ldr;
  const Epilogue* epilogue;  // nullable
  bool to_bfloat;            // C is bfloat16
  void* c;
  std::int64_t line_c, ldc;  // elements from a line or row of C to the next
  // Nothing follows the product, there is one line of floats, and whole vectors of 16 columns may be written.
  bool whole;
  CancelPoints* points;  // null: none
};

struct Loops {
  int lanes;  // 0: no such products here
  int k_step;
  double tile_cost;  // multiply-adds that are worth a tile
  void (*run)(const Tile& tile);
  // Rounds to nearest even; NaN stays NaN, and numbers below 2^-126 become 0. False: some are not finite then.
  bool (*convert)(const float* from, std::int64_t n, std::uint16_t* to);
  // Copies elements. False: some are not finite.
  bool (*copy)(const std::uint16_t* from, std::int64_t n, std::uint16_t* to);
  int unit = 2;             // k that lie together
  bool is_float16 = false;  // else bfloat16
  // B of floats in one segment, of which k is written, and zeros up to `padded`; blocks of columns are `block` elements apart. The
  // k of a column lie together and columns `step` apart, or the columns of a row and rows `step` apart. Of k_avx512_bf16 alone, for
  // k_avx512_amx too.
  void (*pack_columns)(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded,
                       std::int64_t block, std::uint16_t* to, CancelPoints* points) = nullptr;
  void (*pack_rows)(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded, std::int64_t block,
                    std::uint16_t* to, CancelPoints* points) = nullptr;
  // Rows of A, `ld` elements apart and with zeros up to `padded`, from the transposed matrix: elements of one k lie together, and
  // those of the next one `step` apart. The cluster k_avx512_bf16 alone has it.
  void (*turn_rows)(const float* from, std::int64_t step, std::int64_t k, std::int64_t rows, std::int64_t padded, std::int64_t ld,
                    std::uint16_t* to, CancelPoints* points) = nullptr;
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_bfloat_gemm
