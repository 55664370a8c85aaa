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

// Steps of kTileK, counted over all segments, of two blocks of columns.
struct Run {
  std::int64_t first, last;
  const std::uint16_t *b0, *b1;
};

// sums += A B for RT panels of rows and CT blocks of columns; the first step begins with 0.
template <int RT, int CT>
void multiply_tiles(const Tile& t, const std::uint16_t* a0, const std::uint16_t* a1, const Run& run, float* sums) {
  constexpr std::int64_t kStep = kSumColumns * 4;
  float* const lower = sums + kTileRows * kSumColumns;
  __asm__ volatile("" ::: "memory");  // the intrinsics do not say that they read memory
  if (run.first == 0) {
    _tile_zero(0);
    if (CT > 1) _tile_zero(1);
    if (RT > 1) _tile_zero(2);
    if (RT > 1 && CT > 1) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kStep);
    if (CT > 1) _tile_loadd(1, sums + kLanes, kStep);
    if (RT > 1) _tile_loadd(2, lower, kStep);
    if (RT > 1 && CT > 1) _tile_loadd(3, lower + kLanes, kStep);
  }
  const std::int64_t lda = t.lda * 2, per_segment = t.padded / kTileK;
  const std::uint16_t* b0 = run.b0 + run.first * kTileElements;
  const std::uint16_t* b1 = run.b1 + run.first * kTileElements;
  std::int64_t segment = run.first / per_segment, at = run.first % per_segment;
  for (std::int64_t step = run.first; step < run.last; ++segment, at = 0) {
    const std::uint16_t* p0 = a0 + t.offsets[segment] + at * kTileK;
    const std::uint16_t* p1 = a1 + t.offsets[segment] + at * kTileK;
    const std::int64_t end = step + per_segment - at < run.last ? step + per_segment - at : run.last;
    for (; step < end; ++step) {
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
  _tile_stored(0, sums, kStep);
  if (CT > 1) _tile_stored(1, sums + kLanes, kStep);
  if (RT > 1) _tile_stored(2, lower, kStep);
  if (RT > 1 && CT > 1) _tile_stored(3, lower + kLanes, kStep);
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

// Rows whose sums wait in the first-level cache, and the k of two blocks of columns that stays there while they pass by.
constexpr std::int64_t kGroup = 6;        // panels, two at a time; their sums have 12 KB of the stack
constexpr std::int64_t kBlockSteps = 12;

class Product {
 public:
  explicit Product(const Tile& tile) : t_(tile), panels_(tile), chain_(split_chain(tile.epilogue)) {}
  ~Product() { __asm__ volatile("tilerelease" ::: "memory"); }

  void run() {
    const std::int64_t steps = t_.segments * t_.padded / kTileK, block = steps * kTileElements;
    const std::int64_t count = panels_.count(), blocks = (steps + kBlockSteps - 1) / kBlockSteps;
    for (std::int64_t column = 0; column < t_.n; column += kSumColumns) {
      const std::int64_t columns = t_.n - column < kSumColumns ? t_.n - column : kSumColumns;
      const std::uint16_t* const b0 = t_.b + column / kLanes * block;
      for (std::int64_t group = 0; group < count; group += kGroup) {
        const std::int64_t end = group + kGroup < count ? group + kGroup : count;
        Run r{0, 0, b0, b0 + block};
        for (std::int64_t b = 0; b < blocks; ++b) {
          r.first = steps * b / blocks;
          r.last = steps * (b + 1) / blocks;
          multiply(group, end, columns, r);
        }
        for (std::int64_t i = group; i < end; ++i) {
          const Panel p = panels_.at(i);
          store_sums(t_, chain_, {sums_ + (i - group) * kPanelFloats, p.rows, p.line, p.x, column, columns});
        }
      }
    }
  }

 private:
  static constexpr std::int64_t kPanelFloats = kTileRows * kSumColumns;

  void multiply(std::int64_t group, std::int64_t end, std::int64_t columns, const Run& r) {
    for (std::int64_t i = group; i < end; i += 2) {
      const Panel first = panels_.at(i);
      const Panel second = i + 1 < end ? panels_.at(i + 1) : Panel{};
      if (first.rows != first_rows_ || second.rows != second_rows_) {
        configure(first.rows, second.rows);
        first_rows_ = first.rows;
        second_rows_ = second.rows;
      }
      float* const sums = sums_ + (i - group) * kPanelFloats;
      if (second.rows > 0) {
        (columns > kLanes ? multiply_tiles<2, 2> : multiply_tiles<2, 1>)(t_, first.a, second.a, r, sums);
      } else {
        (columns > kLanes ? multiply_tiles<1, 2> : multiply_tiles<1, 1>)(t_, first.a, first.a, r, sums);
      }
    }
  }

  const Tile& t_;
  const Panels panels_;
  const Chain chain_;
  std::int64_t first_rows_ = 0, second_rows_ = 0;
  alignas(64) float sums_[kGroup * kPanelFloats];
};

void run(const Tile& t) { Product(t).run(); }

}  // namespace

extern const simd_bfloat_dot::Loops loops_bfloat_dot;
const simd_bfloat_dot::Loops loops_bfloat_dot = {kLanes, kTileK, 8e6, run, convert, copy};

}  // namespace evn::EVN_ISA
