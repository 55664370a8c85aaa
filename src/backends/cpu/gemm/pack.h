// Packed copies of constant matrices for gemm/gemm_loops.h, and how a matrix product is cut into tiles.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/gemm_loops.h"

namespace evn {

// Floats of a packed m x k matrix A, or of a packed k x n matrix B. Throws EVN_ERROR_LIMIT on overflow.
std::int64_t packed_a_floats(const simd_gemm::Loops& loops, std::int64_t m, std::int64_t k);
std::int64_t packed_b_floats(const simd_gemm::Loops& loops, std::int64_t n, std::int64_t k);

// A panel of `columns` columns, `depth` rows of `width` floats, zeros from `columns` on: element (k, j) is b[k * row + j * column].
void pack_panel(const float* b, std::int64_t row, std::int64_t column, std::int64_t columns, std::int64_t width, std::int64_t depth,
                float* to);
// Packs some columns of a wider panel, whose rows are `step` floats apart.
void pack_columns(const float* b, std::int64_t row, std::int64_t column, std::int64_t columns, std::int64_t width,
                  std::int64_t depth, std::int64_t step, float* to);

// Element (i, k) of A is a[i * row + k * column]; of B, (k, j) is b[k * row + j * column]. Values are multiplied by `scale`.
void pack_a(const simd_gemm::Loops& loops, const float* a, std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t k,
            float* to);
void pack_b(const simd_gemm::Loops& loops, const float* b, std::int64_t row, std::int64_t column, std::int64_t n, std::int64_t k,
            float scale, float* to);

// A product of m x k by k x n, `outer` times, cut into row_tiles x column_tiles tiles each.
struct Tiling {
  std::int64_t rows, columns;  // of a tile; the last ones may be smaller or, by a few columns, larger
  std::int64_t row_tiles, column_tiles;

  std::int64_t tiles() const { return row_tiles * column_tiles; }
  std::int64_t row_end(std::int64_t t, std::int64_t m) const { return t + 1 == row_tiles ? m : (t + 1) * rows; }
  std::int64_t column_end(std::int64_t t, std::int64_t n) const { return t + 1 == column_tiles ? n : (t + 1) * columns; }
};

// `least_rows`: 0 when B is packed already and rows may be cut freely; else the rows that make packing a block of B worth its
// while.
Tiling tile_packed_gemm(const simd_gemm::Loops& loops, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t outer,
                        std::int64_t least_rows);

}  // namespace evn
