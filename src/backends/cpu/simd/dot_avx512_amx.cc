// The loops of simd/dot.h by products of matrix tiles (AMX): 2 x 2 tiles of 16 x 16 sums, which read four tiles of 16 x 64 bytes
// for four products. Few rows leave tiles empty and are bound by reading B: they are done by vectors, from the same packed B. The
// tiles' state is set up for each call and released at its end, so that threads of a host are left as they were.
#include "backends/cpu/simd/dot_tile.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kTileRows = 16;
constexpr std::int64_t kTileBytes = 1024;    // of a tile of B: 16 quads of k by 16 columns
constexpr std::int64_t kTileK = 64;
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kSumColumns = 2 * kLanes;

// What ldtilecfg reads. Tiles 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Rows of the first and of the second tile of A. Not by gcc 12's intrinsic, which tells the compiler of 8 of the 64 bytes.
void configure(std::int64_t first, std::int64_t second) {
  TileConfig config;
  const auto rows0 = static_cast<std::uint8_t>(first);
  const auto rows1 = static_cast<std::uint8_t>(second > 0 ? second : 1);
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64;
  config.rows[0] = config.rows[1] = config.rows[4] = rows0;
  config.rows[2] = config.rows[3] = config.rows[5] = rows1;
  config.rows[6] = config.rows[7] = kTileRows;
  __asm__ volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
}

struct Panel {
  const std::uint8_t* a;
  std::int64_t line, x, rows;
};

// What of B is fetched into the second-level cache meanwhile: `lines` of memory for each 64 of k.
struct Ahead {
  const std::int8_t* next;
  std::int64_t lines;
};

// sums = A B for RT panels of rows and CT blocks of columns.
template <int RT, int CT>
void multiply_tiles(const Tile& t, const std::uint8_t* a0, const std::uint8_t* a1, const std::int8_t* b0, const std::int8_t* b1,
                    Ahead* ahead, std::int32_t* sums) {
  __asm__ volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  _tile_zero(0);
  if (CT > 1) _tile_zero(1);
  if (RT > 1) _tile_zero(2);
  if (RT > 1 && CT > 1) _tile_zero(3);
  for (std::int64_t s = 0; s < t.segments; ++s) {
    const std::uint8_t* p0 = a0 + t.offsets[s];
    const std::uint8_t* p1 = a1 + t.offsets[s];
    for (std::int64_t k = 0; k < t.padded; k += kTileK) {
      _tile_loadd(6, b0, 64);
      _tile_loadd(4, p0, t.lda);
      _tile_dpbusd(0, 4, 6);
      if (CT > 1) {
        _tile_loadd(7, b1, 64);
        _tile_dpbusd(1, 4, 7);
      }
      for (std::int64_t line = 0; line < ahead->lines; ++line, ahead->next += 64) _mm_prefetch(ahead->next, _MM_HINT_T1);
      if (RT > 1) {
        _tile_loadd(5, p1, t.lda);
        _tile_dpbusd(2, 5, 6);
        if (CT > 1) _tile_dpbusd(3, 5, 7);
      }
      p0 += kTileK;
      p1 += kTileK;
      b0 += kTileBytes;
      b1 += kTileBytes;
    }
  }
  constexpr std::int64_t kStep = kSumColumns * 4;
  _tile_stored(0, sums, kStep);
  if (CT > 1) _tile_stored(1, sums + kLanes, kStep);
  if (RT > 1) _tile_stored(2, sums + kTileRows * kSumColumns, kStep);
  if (RT > 1 && CT > 1) _tile_stored(3, sums + kTileRows * kSumColumns + kLanes, kStep);
}

// How the lines of a tile are cut into panels: a single one, of a matrix, into whole panels and a rest, others evenly.
struct Panels {
  const Tile& t;
  std::int64_t per_line, size;

  explicit Panels(const Tile& tile) : t(tile) {
    per_line = (t.width + kTileRows - 1) / kTileRows;
    size = t.lines == 1 ? kTileRows : (t.width + per_line - 1) / per_line;
  }
  std::int64_t count() const { return t.lines * per_line; }
  Panel at(std::int64_t i) const {
    const std::int64_t line = i / per_line, x = i % per_line * size;
    return {t.a + line * t.line_step + x * t.lda, line, x, t.width - x < size ? t.width - x : size};
  }
};

constexpr std::int64_t kSums = 2 * kTileRows * kSumColumns;

// The sums of one or two panels by some columns.
struct Sums {
  Panel first, second;
  std::int64_t column, columns;
  const std::int32_t* sums;
};

void finish(const Tile& t, const Sums& s) {
  if (s.first.rows > 0) store_block(t, {s.sums, kSumColumns, s.first.rows, s.first.line, s.first.x, s.column, s.columns});
  if (s.second.rows == 0) return;
  store_block(t, {s.sums + kTileRows * kSumColumns, kSumColumns, s.second.rows, s.second.line, s.second.x, s.column, s.columns});
}

void run(const Tile& t) {
  if (t.lines * t.width <= kFewRows) return run_vectors(t);
  alignas(64) std::int32_t both[2 * kSums];
  std::int32_t* sums = both;
  Sums done{};
  const std::int64_t block = t.segments * t.padded * kLanes;
  const Panels panels(t);
  const std::int64_t count = panels.count();
  std::int64_t first_rows = 0, second_rows = 0;
  sum_rows(t);
  for (std::int64_t column = 0; column < t.n; column += kSumColumns) {
    const std::int64_t columns = t.n - column < kSumColumns ? t.n - column : kSumColumns;
    const std::int8_t* const b0 = t.b + column / kLanes * block;
    const std::int8_t* const b1 = b0 + block;
    // The next columns' B, in equal parts for each pair of panels.
    const std::int64_t steps = (count + 1) / 2;
    Ahead ahead{b1 + block, column + kSumColumns < t.n ? (2 * kTileBytes / 64 + steps - 1) / steps : 0};
    for (std::int64_t i = 0; i < count; i += 2) {
      const Panel first = panels.at(i);
      const Panel second = i + 1 < count ? panels.at(i + 1) : Panel{};
      if (first.rows != first_rows || second.rows != second_rows) {
        configure(first.rows, second.rows);
        first_rows = first.rows;
        second_rows = second.rows;
      }
      if (second.rows > 0) {
        const auto multiply = columns > kLanes ? multiply_tiles<2, 2> : multiply_tiles<2, 1>;
        multiply(t, first.a, second.a, b0, b1, &ahead, sums);
      } else {
        const auto multiply = columns > kLanes ? multiply_tiles<1, 2> : multiply_tiles<1, 1>;
        multiply(t, first.a, first.a, b0, b1, &ahead, sums);
      }
      // The sums before these are stored now, while the tiles are still at work.
      finish(t, done);
      done = {first, second, column, columns, sums};
      sums = sums == both ? both + kSums : both;
    }
  }
  finish(t, done);
  __asm__ volatile("tilerelease" ::: "memory");
}

}  // namespace

extern const simd_dot::Loops loops_dot;
const simd_dot::Loops loops_dot = {kLanes, kTileK, 1.5e7, run, flip_bytes};

}  // namespace evn::EVN_ISA
