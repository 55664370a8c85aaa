#include "backends/cpu/gemm/pack.h"

#include <algorithm>

#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/support.h"
#include "base/checked.h"

namespace evn {
namespace {

constexpr std::int64_t kFewColumns = 4;            // a remainder that is cheaper as part of the tile before it
constexpr std::int64_t kMostRows = 192;            // with B packed, rows that use a block of it while it is in L1
constexpr std::int64_t kMostTileFloats = 1 << 17;  // of C, so that partial sums stay in L2

}  // namespace

std::int64_t packed_a_floats(const simd_gemm::Loops& loops, std::int64_t m, std::int64_t k) {
  return checked_mul(round_up(m, loops.mr), k);
}
std::int64_t packed_b_floats(const simd_gemm::Loops& loops, std::int64_t n, std::int64_t k) {
  return checked_mul(round_up(n, loops.nr), k);
}

void pack_columns(const float* b, std::int64_t row, std::int64_t column, std::int64_t columns, std::int64_t width,
                  std::int64_t depth, std::int64_t step, float* to) {
  const simd_transpose::Loops& move = simd_transpose::loops(cpu_isa());
  if (column == 1) {
    move.copy(b, row, depth, columns, to, step);
  } else if (row == 1) {
    move.transpose(b, column, columns, depth, to, step);
  } else {
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t j = 0; j < columns; ++j) to[k * step + j] = b[k * row + j * column];
    }
  }
  for (std::int64_t k = 0; k < depth && columns < width; ++k) std::fill(to + k * step + columns, to + k * step + width, 0.0f);
}

void pack_panel(const float* b, std::int64_t row, std::int64_t column, std::int64_t columns, std::int64_t width, std::int64_t depth,
                float* to) {
  pack_columns(b, row, column, columns, width, depth, width, to);
}

void pack_a(const simd_gemm::Loops& loops, const float* a, std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t k,
            float* to) {
  for (std::int64_t i = 0; i < m; i += loops.mr, to += loops.mr * k) {
    pack_panel(a + i * row, column, row, std::min<std::int64_t>(loops.mr, m - i), loops.mr, k, to);
  }
}

void pack_b(const simd_gemm::Loops& loops, const float* b, std::int64_t row, std::int64_t column, std::int64_t n, std::int64_t k,
            float scale, float* to) {
  for (std::int64_t j = 0; j < n; j += loops.nr, to += loops.nr * k) {
    pack_panel(b + j * column, row, column, std::min<std::int64_t>(loops.nr, n - j), loops.nr, k, to);
    if (scale != 1) std::transform(to, to + loops.nr * k, to, [scale](float v) { return v * scale; });
  }
}

Tiling tile_packed_gemm(const simd_gemm::Loops& loops, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t outer,
                        std::int64_t least_rows) {
  const double total = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(std::max<std::int64_t>(k, 1)) *
                       static_cast<double>(outer);
  const auto wanted = static_cast<std::int64_t>(std::clamp(total / kTileCost, 1.0, static_cast<double>(kManyTiles)));
  Tiling t;
  t.rows = std::max<std::int64_t>(1, m);
  if (least_rows == 0 && m > kMostRows) t.rows = round_up(ceil_div(m, ceil_div(m, kMostRows)), loops.mr);
  t.row_tiles = std::max<std::int64_t>(1, ceil_div(m, t.rows));

  const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(n - kFewColumns, loops.nr));
  const double panel_cost = static_cast<double>(t.rows) * static_cast<double>(k) * loops.nr;
  std::int64_t per_tile = units_per_tile(panels, panel_cost, 4 * kTileCost);
  per_tile = std::min(per_tile, std::max<std::int64_t>(1, kMostTileFloats / (t.rows * loops.nr)));
  per_tile = std::min(per_tile, std::max<std::int64_t>(1, panels * outer * t.row_tiles / wanted));
  per_tile = ceil_div(panels, ceil_div(panels, per_tile));
  t.columns = per_tile * loops.nr;
  t.column_tiles = ceil_div(panels, per_tile);

  const std::int64_t floor_rows = std::max<std::int64_t>(least_rows, 2 * loops.mr);
  while (outer * t.tiles() < wanted && t.rows >= 2 * floor_rows) {
    t.rows = round_up(ceil_div(t.rows, 2), loops.mr);
    t.row_tiles = ceil_div(m, t.rows);
  }
  return t;
}

}  // namespace evn
