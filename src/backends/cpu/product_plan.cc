#include "backends/cpu/product_plan.h"

#include <algorithm>

#include "backends/cpu/pack.h"
#include "backends/cpu/support.h"
#include "base/error.h"

namespace evn {

std::int64_t product_floats(const simd_product::Loops& loops, std::int64_t n, std::int64_t k) {
  return checked_mul(checked_mul(ceil_div(n, loops.lanes), std::int64_t{loops.lanes}), k);
}

namespace {

constexpr std::int64_t kTurned = 32;  // rows of a panel
constexpr std::int64_t kMostWidth = 64;

// A panel of filters: the rows of taps of a channel follow each other in memory, and belong `channels` rows apart.
void pack_taps(const ProductSource& from, const float* b, std::int64_t columns, std::int64_t width, float* to) {
  alignas(64) float turned[kTurned * kMostWidth];
  const std::int64_t depth = from.taps * from.channels;
  std::int64_t tap = 0, channel = 0;
  for (std::int64_t first = 0; first < depth; first += kTurned) {
    const std::int64_t rows = std::min(kTurned, depth - first);
    pack_panel(b + first, 1, from.column_step, columns, width, rows, turned);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(turned + r * width, width, to + (tap * from.channels + channel) * width);
      if (++tap < from.taps) continue;
      tap = 0;
      ++channel;
    }
  }
}

}  // namespace

void pack_product(const simd_product::Loops& loops, const ProductSource& from, std::int64_t n, float scale, float* to) {
  EVN_CHECK(loops.nr <= kMostWidth);
  const std::int64_t depth = from.taps * from.channels;
  for (std::int64_t column = 0; column < n; column += loops.nr) {
    const std::int64_t columns = std::min<std::int64_t>(loops.nr, n - column);
    const std::int64_t width = ceil_div(columns, loops.lanes) * loops.lanes;
    const float* const b = from.b + column * from.column_step;
    if (from.taps == 1) {
      pack_panel(b, from.channel_step, from.column_step, columns, width, depth, to);
    } else {
      pack_taps(from, b, columns, width, to);
    }
    if (scale != 1) std::transform(to, to + depth * width, to, [scale](float v) { return v * scale; });
    to += depth * width;
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
