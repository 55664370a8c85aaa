// The loops of simd/bfloat_dot.h by products of matrix tiles (AMX), as simd/dot_avx512_amx.cc does it for bytes. Few rows are no case of
// their own, though tiles are half empty then: vdpbf16ps adds in another order, and a row's result must not depend on how many
// there are.
#include "backends/cpu/simd/bfloat_dot_tile.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kTileRows = 16;
constexpr std::int64_t kTileElements = 512;  // of a tile of B: 16 pairs of k by 16 columns
constexpr std::int64_t kTileK = 32;

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
  const std::uint16_t* a;
  std::int64_t line, x, rows;
};

// sums = A B for RT panels of rows and CT blocks of columns.
template <int RT, int CT>
void multiply_tiles(const Tile& t, const std::uint16_t* a0, const std::uint16_t* a1, const std::uint16_t* b0, const std::uint16_t* b1,
                    float* sums) {
  __asm__ volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  _tile_zero(0);
  if (CT > 1) _tile_zero(1);
  if (RT > 1) _tile_zero(2);
  if (RT > 1 && CT > 1) _tile_zero(3);
  const std::int64_t lda = t.lda * 2;
  for (std::int64_t s = 0; s < t.segments; ++s) {
    const std::uint16_t* p0 = a0 + t.offsets[s];
    const std::uint16_t* p1 = a1 + t.offsets[s];
    for (std::int64_t k = 0; k < t.padded; k += kTileK) {
      _tile_loadd(6, b0, 64);
      _tile_loadd(4, p0, lda);
      _tile_dpbf16ps(0, 4, 6);
      if (CT > 1) {
        _tile_loadd(7, b1, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if (RT > 1) {
        _tile_loadd(5, p1, lda);
        _tile_dpbf16ps(2, 5, 6);
        if (CT > 1) _tile_dpbf16ps(3, 5, 7);
      }
      p0 += kTileK;
      p1 += kTileK;
      b0 += kTileElements;
      b1 += kTileElements;
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

void run(const Tile& t) {
  alignas(64) float sums[2 * kTileRows * kSumColumns];
  const std::int64_t block = t.segments * t.padded * kLanes;
  const Panels panels(t);
  const Chain chain = split_chain(t.epilogue);
  const std::int64_t count = panels.count();
  std::int64_t first_rows = 0, second_rows = 0;
  for (std::int64_t column = 0; column < t.n; column += kSumColumns) {
    const std::int64_t columns = t.n - column < kSumColumns ? t.n - column : kSumColumns;
    const std::uint16_t* const b0 = t.b + column / kLanes * block;
    const std::uint16_t* const b1 = b0 + block;
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
        multiply(t, first.a, second.a, b0, b1, sums);
      } else {
        const auto multiply = columns > kLanes ? multiply_tiles<1, 2> : multiply_tiles<1, 1>;
        multiply(t, first.a, first.a, b0, b1, sums);
      }
      store_sums(t, chain, {sums, first.rows, first.line, first.x, column, columns});
      if (second.rows > 0) {
        store_sums(t, chain, {sums + kTileRows * kSumColumns, second.rows, second.line, second.x, column, columns});
      }
    }
  }
  __asm__ volatile("tilerelease" ::: "memory");
}

}  // namespace

extern const simd_bfloat_dot::Loops loops_bfloat_dot;
const simd_bfloat_dot::Loops loops_bfloat_dot = {kLanes, kTileK, 8e6, run, convert, copy};

}  // namespace evn::EVN_ISA
