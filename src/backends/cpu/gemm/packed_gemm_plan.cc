#include "backends/cpu/gemm/packed_gemm_plan.h"

#include <algorithm>

#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/support.h"
#include "base/error.h"

namespace evn {

std::int64_t packed_gemm_floats(const simd_packed_gemm::Loops& loops, std::int64_t n, std::int64_t k) {
  return checked_mul(checked_mul(ceil_div(n, loops.lanes), std::int64_t{loops.lanes}), k);
}

namespace {

constexpr std::int64_t kTurned = 32;  // rows of a panel
constexpr std::int64_t kMostWidth = 64;

// Columns of a panel of filters: the rows of taps of a channel follow each other in memory, and belong `channels` rows apart.
void pack_taps(const PackedGemmSource& from, const float* b, std::int64_t columns, std::int64_t width, std::int64_t step,
               float* to) {
  alignas(64) float turned[kTurned * kMostWidth];
  const std::int64_t depth = from.taps * from.channels;
  std::int64_t tap = 0, channel = 0;
  for (std::int64_t first = 0; first < depth; first += kTurned) {
    const std::int64_t rows = std::min(kTurned, depth - first);
    pack_panel(b + first, 1, from.column_step, columns, width, rows, turned);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(turned + r * width, width, to + (tap * from.channels + channel) * step);
      if (++tap < from.taps) continue;
      tap = 0;
      ++channel;
    }
  }
}

}  // namespace

void pack_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmSource& from, const PackedGemmPart& part, float scale,
                      float* to) {
  EVN_CHECK(loops.nr <= kMostWidth);
  const std::int64_t rows = from.taps * from.channels;
  const auto padded = [&](std::int64_t columns) { return round_up(columns, loops.lanes); };
  for (std::int64_t column = part.column; column < part.end;) {
    const std::int64_t in_panel = column % loops.nr, panel = column - in_panel;
    const std::int64_t step = padded(std::min<std::int64_t>(loops.nr, part.n - panel));
    const std::int64_t columns = std::min(loops.nr - in_panel, part.end - column);
    const std::int64_t width = padded(columns);
    const float* const b = from.b + (column - part.column) * from.column_step;
    float* const at = to + panel * part.k + part.row * step + in_panel;
    if (from.taps == 1) {
      pack_columns(b, from.channel_step, from.column_step, columns, width, rows, step, at);
    } else {
      pack_taps(from, b, columns, width, step, at);
    }
    for (std::int64_t r = 0; r < rows && scale != 1; ++r) {
      std::transform(at + r * step, at + r * step + width, at + r * step, [scale](float v) { return v * scale; });
    }
    column += columns;
  }
}

void pack_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmSource& from, std::int64_t n, float scale, float* to) {
  pack_packed_gemm(loops, from, {0, from.taps * from.channels, 0, n, n}, scale, to);
}

namespace {

// In multiply-adds of one core.
constexpr double kLeastTile = 400'000;   // a tile that is worth dealing out, some 3 us
constexpr double kLeastShare = 100'000;  // of a thread, else it is not worth waking
constexpr double kTileStart = 20'000;
constexpr double kFetch = 2;  // to read a float of A or B once more
constexpr double kCopy = 6;   // to copy a float of A once more
constexpr std::int64_t kTilesPerThread = 8;
constexpr double kLargeB = 1 << 17;  // floats of B that do not stay near: products by fewer rows than these take as long as
constexpr double kRowsOfARead = 8;   // it takes to read B

// The time of the last thread to end, when each takes the next tile as it gets free.
double span_of(const PackedGemmWork& w, const PackedGemmTiling& t) {
  const double outer = static_cast<double>(w.outer);
  const double m = static_cast<double>(w.m), n = static_cast<double>(w.n), k = static_cast<double>(w.k);
  const std::int64_t tiles = w.outer * t.tiles();
  const double turns = static_cast<double>(ceil_div(tiles, std::int64_t{w.threads}));
  const double reads =
      outer * k *
      (static_cast<double>(t.row_tiles) * n * kFetch + static_cast<double>(t.column_tiles) * m * (w.copies ? kCopy : kFetch));
  const double all = outer * m * n * k + reads + static_cast<double>(tiles) * kTileStart;
  const double largest =
      all * static_cast<double>(std::min(t.rows, w.m)) * static_cast<double>(std::min(t.columns, w.n)) / (outer * m * n);
  return std::max(all / w.threads, (turns - 1) * all / static_cast<double>(tiles) + largest);
}

}  // namespace

PackedGemmTiling tile_packed_gemm(const simd_packed_gemm::Loops& loops, const PackedGemmWork& w) {
  const std::int64_t m = std::max<std::int64_t>(1, w.m);
  const std::int64_t row_panels = ceil_div(m, std::int64_t{loops.mr});
  const std::int64_t column_panels = std::max<std::int64_t>(1, ceil_div(w.n, std::int64_t{loops.nr}));
  const auto tiling = [&](std::int64_t row_tiles, std::int64_t column_tiles) {
    PackedGemmTiling t;
    t.rows = row_tiles == 1 ? m : ceil_div(row_panels, row_tiles) * loops.mr;
    t.columns = ceil_div(column_panels, column_tiles) * loops.nr;
    t.row_tiles = ceil_div(m, t.rows);
    t.column_tiles = ceil_div(column_panels * loops.nr, t.columns);
    return t;
  };
  const std::int64_t most = w.copies ? loops.mc : 2 * loops.mc;
  const std::int64_t block_panels = std::max<std::int64_t>(1, loops.mc / loops.mr);  // whole micro-tiles in a block of rows
  const std::int64_t least_rows = m > most ? ceil_div(row_panels, block_panels) : 1;
  PackedGemmTiling best = tiling(least_rows, 1);
  const double floats = static_cast<double>(w.n) * static_cast<double>(w.k);
  const double least_rate = floats >= kLargeB ? kRowsOfARead : 1;
  const double all = static_cast<double>(w.outer) * floats * std::max(least_rate, static_cast<double>(m));
  if (w.threads < 2 || all < 2 * kLeastShare) return best;
  const auto wanted =
      std::max<std::int64_t>(w.threads, std::min(kTilesPerThread * w.threads, static_cast<std::int64_t>(all / kLeastTile)));
  double least = span_of(w, best);
  for (std::int64_t columns = 1; columns <= std::min(column_panels, wanted); ++columns) {
    for (std::int64_t rows = least_rows; rows <= row_panels; ++rows) {
      if (rows > least_rows && rows * columns * w.outer > 2 * wanted) break;
      const PackedGemmTiling t = tiling(rows, columns);
      const double span = span_of(w, t);
      if (span >= least) continue;
      least = span;
      best = t;
    }
  }
  return best;
}

}  // namespace evn
