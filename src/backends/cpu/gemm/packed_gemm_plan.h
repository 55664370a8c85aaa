// What the kernels on gemm/packed_gemm_loops.h share: the packed constant B, and how a product is cut into tiles.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/packed_gemm_loops.h"

namespace evn {

// Floats of a packed k x n matrix. Throws EVN_ERROR_LIMIT on overflow.
std::int64_t packed_gemm_floats(const simd_packed_gemm::Loops& loops, std::int64_t n, std::int64_t k);

// Element (tap * channels + channel, j) of B is b[tap + channel * channel_step + j * column_step]. With more than one tap,
// channel_step is `taps`.
struct PackedGemmSource {
  const float* b;
  std::int64_t taps, channels;
  std::int64_t channel_step, column_step;
};

// Which part of a k x n matrix B the source is: taps * channels rows from `row` on, columns [column, end). With more than one tap
// it is all rows. `column`, and `end` if it is not n, are multiples of the lanes, so that parts write no common vectors.
struct PackedGemmPart {
  std::int64_t row, k;
  std::int64_t column, end, n;
};

// Writes the part to where it belongs in the packed copy of B at `to`. Values are multiplied by `scale`.
void pack_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmSource& from, const PackedGemmPart& part, float scale,
                      float* to);
// All of it.
void pack_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmSource& from, std::int64_t n, float scale, float* to);

// m x n in row_tiles x column_tiles tiles, numbered with columns fastest.
struct PackedGemmTiling {
  std::int64_t rows, columns;  // of a tile; the last ones may be smaller
  std::int64_t row_tiles, column_tiles;

  std::int64_t tiles() const { return row_tiles * column_tiles; }
};

struct PackedGemmWork {
  std::int64_t m, n, k;
  std::int64_t outer;     // as many like products are in the same call
  bool copies;            // rows are copied for each tile (a window), so that few column tiles are better
  std::uint32_t threads;  // that share it
};

PackedGemmTiling tile_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmWork& work);

// Calls f(outer, row, rows, column, columns) for tiles [begin, end) of `outer` products, with the column tiles that follow each
// other taken together.
template <typename F>
void for_each_packed_gemm_tile(const PackedGemmTiling& t, std::int64_t m, std::int64_t n, std::int64_t begin, std::int64_t end,
                               F&& f) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t column_tile = i % t.column_tiles;
    const std::int64_t row_tile = i / t.column_tiles % t.row_tiles;
    const std::int64_t left = t.column_tiles - column_tile;
    const std::int64_t count = left < end - i ? left : end - i;
    const std::int64_t row = row_tile * t.rows;
    const std::int64_t column = column_tile * t.columns;
    const std::int64_t last = column + count * t.columns;
    if (!f(i / t.tiles(), row, (m - row < t.rows ? m - row : t.rows), column, (last < n ? last : n) - column)) return;
    i += count;
  }
}

}  // namespace evn
