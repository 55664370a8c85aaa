// What kernels/tiled.cl has for GPUs: tiles of products and convolutions in several sizes, which give the same bits.
#pragma once

#include "backends/opencl/launcher.h"
#include "backends/opencl/tuning.h"

namespace evn {

struct Tile {
  std::int64_t rows, columns;
  std::int64_t chains_at_once;  // 4: each by a part of the work group
  std::uint64_t local_bytes;
  OpenClFunction function;
};
inline constexpr int kTiles = 7;

// Local memory of `steps` of the depth of both operands, each of which has four numbers more to a step. `steps`: those of a stage,
// times the stages, times the chains at once.
constexpr std::uint64_t tile_bytes(std::uint64_t rows, std::uint64_t columns, std::uint64_t steps) {
  return steps * (rows + 4 + columns + 4) * sizeof(float);
}

// What a step of the depth costs: the work groups of a compute unit one after the other, and at least one that is alone there. In
// ns on an H100, as `tuning: measure` found; only their ratios count.
struct TileCost {
  double alone, each;
};
inline constexpr TileCost kCostOfMatrices[kTiles] = {{125, 125}, {70, 70}, {50, 37}, {34, 34}, {21, 17.5}, {15, 12}, {41, 12.5}};
inline constexpr TileCost kCostOfWindows[kTiles] = {{140, 140}, {72, 64}, {55, 43}, {51, 65}, {34, 32}, {18.5, 16}, {63, 20}};

// As tiled.cl has them.
struct TiledFunctions {
  const char* family;
  const TileCost* costs;
  Tile tiles[kTiles];
};

#define EVN_TILES(SOURCE, PREFIX, COSTS)                                          \
  {                                                                               \
    SOURCE " " PREFIX, COSTS, {                                                   \
      {128, 128, 1, tile_bytes(128, 128, 16), {SOURCE, PREFIX "_128x128", 256}},  \
          {128, 64, 1, tile_bytes(128, 64, 32), {SOURCE, PREFIX "_128x64", 256}}, \
          {64, 64, 1, tile_bytes(64, 64, 32), {SOURCE, PREFIX "_64x64", 256}},    \
          {64, 64, 4, tile_bytes(64, 64, 64), {SOURCE, PREFIX "_64x64_4", 256}},  \
          {32, 64, 4, tile_bytes(32, 64, 64), {SOURCE, PREFIX "_32x64_4", 256}},  \
          {32, 32, 4, tile_bytes(32, 32, 64), {SOURCE, PREFIX "_32x32_4", 256}},  \
          {32, 32, 1, tile_bytes(32, 32, 32), {SOURCE, PREFIX "_32x32", 64}},     \
    }                                                                             \
  }

// The steps of the depth in one chain of sums, by the depth alone: four chains of a deep product, so that a work group can make
// them at once, else one. Chains of very deep products are shorter, as long ones round more.
constexpr std::int64_t chain_of(std::int64_t depth) {
  constexpr std::int64_t kDeep = 256, kLongestStep = 32;        // of a tile
  constexpr std::int64_t kVeryDeep = 7 << 12, kLongest = 1024;  // a chain of a quarter of it rounds up to 1e-4
  if (depth > kVeryDeep) return kLongest;
  return depth < kDeep ? std::max<std::int64_t>(depth, 1) : ceil_div(ceil_div(depth, std::int64_t{4}), kLongestStep) * kLongestStep;
}
// True if the chains are no more than a work group can make at once.
constexpr bool has_chains_at_once(std::int64_t depth) { return chain_of(depth) < depth && 4 * chain_of(depth) >= depth; }

// True if the depth has enough chains for the tile, and a work group enough local memory.
inline bool can_take(const Tile& t, std::int64_t depth, std::uint64_t local_bytes) {
  return t.local_bytes <= local_bytes && (t.chains_at_once == 1 || has_chains_at_once(depth));
}

// The tiles that cost least, of those that the depth and the local memory allow.
inline int choose_tile(const TiledFunctions& tiled, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t products,
                       std::int64_t compute_units, std::uint64_t local_bytes) {
  int best = kTiles - 1;
  double least = 0;
  for (int i = kTiles - 1; i >= 0; --i) {
    const Tile& t = tiled.tiles[i];
    if (!can_take(t, k, local_bytes)) continue;
    const std::int64_t groups = checked_mul(checked_mul(ceil_div(m, t.rows), ceil_div(n, t.columns)), products);
    const auto turns = static_cast<double>(ceil_div(groups, std::max<std::int64_t>(compute_units, 1)));
    const double cost = std::max(tiled.costs[i].alone, tiled.costs[i].each * turns);
    if (i < kTiles - 1 && cost > least) continue;
    best = i;
    least = cost;
  }
  return best;
}

// Measures the tiles that the depth and the local memory allow; the number of the fastest.
template <typename Run>
int measure_tiles(Launcher& cl, const TiledFunctions& tiled, const OpenClTuning::Shape& shape, int chosen, const Run& run) {
  OpenClTuning::Candidate candidates[kTiles];
  for (int i = 0; i < kTiles; ++i) {
    candidates[i] = {tiled.tiles[i].function.name, can_take(tiled.tiles[i], shape.k, cl.local_bytes())};
  }
  return cl.tuning().measure(shape, candidates, chosen, cl, run);
}

// Enqueues the tiles that were measured to be the fastest for this shape, else those of choose_tile. `args`: up to Epilogue.
template <typename... Args>
void run_tiled(Launcher& cl, const TiledFunctions& tiled, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t products,
               const Args&... args) {
  if (m <= 0 || n <= 0 || products <= 0) return;
  const std::int64_t chain = chain_of(k);
  const auto run = [&](int i) {
    const Tile& t = tiled.tiles[i];
    const std::int64_t groups = checked_mul(ceil_div(m, t.rows), ceil_div(n, t.columns));
    cl.run(t.function, {checked_mul(groups, static_cast<std::int64_t>(t.function.group)), products}, args..., chain);
  };
  OpenClTuning& tuning = cl.tuning();
  const OpenClTuning::Shape shape{tiled.family, m, n, k, products};
  int chosen = tuning.find(shape);
  if (chosen < 0 || chosen >= kTiles || !can_take(tiled.tiles[chosen], k, cl.local_bytes())) {
    chosen = choose_tile(tiled, m, n, k, products, cl.compute_units(), cl.local_bytes());
    if (tuning.measures()) chosen = measure_tiles(cl, tiled, shape, chosen, run);
  }
  run(chosen);
}

}  // namespace evn
