#include "backends/cpu/product_plan.h"

#include <algorithm>

#include "backends/cpu/support.h"

namespace evn {

std::int64_t product_floats(const simd_product::Loops& loops, std::int64_t n, std::int64_t k) {
  return checked_mul(checked_mul(ceil_div(n, loops.lanes), std::int64_t{loops.lanes}), k);
}

void pack_product(const simd_product::Loops& loops, const ProductSource& from, std::int64_t n, float scale, float* to) {
  for (std::int64_t column = 0; column < n; column += loops.nr) {
    const std::int64_t columns = std::min<std::int64_t>(loops.nr, n - column);
    const std::int64_t width = ceil_div(columns, loops.lanes) * loops.lanes;
    const float* const b = from.b + column * from.column_step;
    for (std::int64_t tap = 0; tap < from.taps; ++tap) {
      for (std::int64_t channel = 0; channel < from.channels; ++channel) {
        const float* const row = b + tap * from.tap_step + channel * from.channel_step;
        for (std::int64_t j = 0; j < columns; ++j) to[j] = row[j * from.column_step] * scale;
        for (std::int64_t j = columns; j < width; ++j) to[j] = 0;
        to += width;
      }
    }
  }
}

ProductTiling tile_rows(const simd_product::Loops& loops, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t outer, bool copies) {
  ProductTiling t;
  const std::int64_t most = copies ? loops.mc : 2 * loops.mc;
  t.rows = std::max<std::int64_t>(1, m);
  if (m > most) {
    const std::int64_t balanced = ceil_div(m, ceil_div(m, loops.mc));
    t.rows = std::min(loops.mc, ceil_div(balanced, loops.mr) * loops.mr);
  }
  t.row_tiles = std::max<std::int64_t>(1, ceil_div(m, t.rows));
  const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(n, loops.nr));
  const double panel_cost = static_cast<double>(t.rows) * static_cast<double>(k) * loops.nr;
  const std::int64_t wanted = std::max<std::int64_t>(1, 2 * kManyTiles / std::max<std::int64_t>(1, outer * t.row_tiles));
  const std::int64_t per_tile = std::max(units_per_tile(panels, panel_cost, kTileCost / 2), ceil_div(panels, wanted));
  const std::int64_t even = ceil_div(panels, ceil_div(panels, per_tile));
  t.columns = even * loops.nr;
  t.column_tiles = ceil_div(panels, even);
  return t;
}

}  // namespace evn
