// Products by matrix tiles (AMX), the same loop for bytes and for bfloat16: blocks of 2 x 2 tiles of 16 x 16 sums, which read four
// tiles of 16 rows of 64 bytes for four products. The sums of a block are stored between the tile instructions of the next one,
// and B is fetched ahead of them. The tiles' state is set up for each call and released at its end, so that threads of a host are
// left as they were. Included by simd/*_avx512_amx.cc only.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/vec.h"

// Code that stays out of loops, as one copy.
#if defined(__clang__)
#define EVN_APART __attribute__((noinline))
#else
#define EVN_APART __attribute__((noinline, noclone))
#endif

namespace evn::EVN_ISA {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kBlockColumns = 2 * kLanes;
constexpr std::int64_t kProductsPerUnit = 32;  // multiply-adds that are a unit of work

// What ldtilecfg reads. Tiles 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// gcc 12's intrinsics do not say what memory they read.
template <int Number>
inline void load_tile(const void* p, std::int64_t step) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(step), "i"(Number) : "memory");
}
template <int Number>
inline void store_tile(void* p, std::int64_t step) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(step), "i"(Number) : "memory");
}
template <int Number>
inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(Number));
}

inline std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// Kind has Tile, Element (of A and B), Sum, kTileK, dot<C, A, B>() for numbers of tiles, Store, which is made of a Tile and stores
// some rows of sums, kBlockColumns apart, and the logarithm of the number of parts in which it does so. kStoresWhole: its Tile may
// say that tiles are stored where C lies.
template <typename Kind>
class AmxProduct {
 public:
  using Tile = typename Kind::Tile;
  using Element = typename Kind::Element;
  using Sum = typename Kind::Sum;

  static constexpr std::int64_t kHalfOfSlots = 2 * 2 * kTileRows * kBlockColumns;  // sums of two slots

  // `more` has room for kHalfOfSlots, aligned to 64.
  AmxProduct(const Tile& tile, Sum* more) : t_(tile), store_(tile), more_(more) {
    per_segment_ = t_.padded / Kind::kTileK;
    steps_ = t_.segments * per_segment_;
    slots_ = steps_ <= kBlockSteps ? 2 : kSlots;
    block_ = steps_ * kTileElements;
    // A single line, of a matrix, is cut into whole panels and a rest, others evenly.
    per_line_ = (t_.width + kTileRows - 1) / kTileRows;
    panel_rows_ = t_.lines == 1 ? kTileRows : (t_.width + per_line_ - 1) / per_line_;
    // Groups are equally large.
    const std::int64_t pairs = (t_.lines * per_line_ + 1) / 2, groups = (pairs + kSlots - 1) / kSlots;
    most_panels_ = groups == 0 ? 0 : 2 * ((pairs + groups - 1) / groups);
  }
  ~AmxProduct() { __asm__ volatile("tilerelease" ::: "memory"); }

  void run() {
    const std::int64_t row_bytes = steps_ * kTileBytes / kTileRows;
    if (2 * kTileRows * row_bytes <= kRowsInL1 && row_bytes * t_.n <= kColumnsInL2) {
      // C is written and residuals are read by whole rows.
      for (Panel next; next.line < t_.lines;) {
        Group g = group_from(&next, 2);
        for (; g.column < t_.n; g.column += kBlockColumns) {
          if (!multiply_group(g)) return;
        }
      }
    } else {
      for (std::int64_t column = 0; column < t_.n; column += kBlockColumns) {
        for (Panel next; next.line < t_.lines;) {
          Group g = group_from(&next, most_panels_);
          g.column = column;
          if (!multiply_group(g)) return;
        }
      }
    }
    store_lower();
    store_waiting(waiting_.rows());
  }

 private:
  static constexpr std::int64_t kTileElements = kTileBytes / std::int64_t{sizeof(Element)};
  static constexpr std::int64_t kSumStep = kBlockColumns * std::int64_t{sizeof(Sum)};
  static constexpr std::int64_t kPanelSums = kTileRows * kBlockColumns;
  static constexpr std::int64_t kSlots = 4;  // of sums of two panels: 16 KB of the stack
  static constexpr std::int64_t kGroup = 2 * kSlots;
  static constexpr std::int64_t kBlockSteps = 12;  // of k, in which two blocks of columns of B stay in the first-level cache
  static constexpr std::int64_t kEdges = 6;        // steps of a block from which on its tiles are stored as multiply() says
  static_assert(kEdges <= (kBlockSteps + 1) / 2, "one of several blocks has as many steps");
  static constexpr std::int64_t kRowsInL1 = 24 << 10, kColumnsInL2 = 768 << 10;

  struct Panel {
    std::int64_t rows = 0, line = 0, x = 0;
  };

  // Panels by two blocks of columns. The panel behind an odd number of them has no rows.
  struct Group {
    Panel panels[kGroup];
    std::int64_t count = 0, column = 0;
    bool is_first = false;
  };

  // A part of k: steps of kTileK, counted over all segments.
  struct Block {
    std::int64_t first, last, segment;  // where the first one lies
    const Element* b;                   // of the columns, from the first step on
    bool has_sums, keeps_sums;          // in tiles, from the block before and for the next one
  };

  // Two panels, of which the second may be empty, by some columns.
  struct Sums {
    Panel first, second;
    std::int64_t column = 0, columns = 0;
    Sum* sums = nullptr;

    std::int64_t rows() const { return first.rows + second.rows; }
  };

  // What of B is fetched into the second-level cache meanwhile: `lines` of memory of each block of columns in each step.
  struct Ahead {
    const char* at = nullptr;
    std::int64_t lines = 0, block_bytes = 0;

    void fetch(bool wide) {
      for (std::int64_t line = 0; line < lines; ++line, at += 64) {
        __builtin_prefetch(at, 0, 2);
        if (wide) __builtin_prefetch(at + block_bytes, 0, 2);
      }
    }
  };

  // Up to `most` panels, of which `next` is where the first one begins.
  EVN_APART Group group_from(Panel* next, std::int64_t most) const {
    Group g;
    g.is_first = next->line == 0 && next->x == 0;
    for (; g.count < most && next->line < t_.lines; ++g.count) {
      next->rows = lesser(t_.width - next->x, panel_rows_);
      g.panels[g.count] = *next;
      next->x += panel_rows_;
      if (next->x >= t_.width) *next = {0, next->line + 1, 0};
    }
    return g;
  }
  Sum* slot(std::int64_t i) { return i < kSlots / 2 ? sums_ + i * 2 * kPanelSums : more_ + (i - kSlots / 2) * 2 * kPanelSums; }
  const Element* rows_of(const Panel& p) const { return t_.a + p.line * t_.line_step + p.x * t_.lda; }

  // False: the run stops.
  __attribute__((noinline)) bool multiply_group(const Group& g) {
    const std::int64_t blocks = steps_ <= kBlockSteps ? 1 : (steps_ + kBlockSteps - 1) / kBlockSteps;
    const auto* const b = reinterpret_cast<const Element*>(t_.b) + g.column / kLanes * block_;
    const std::int64_t pairs = (g.count + 1) / 2;
    // The first pair to be multiplied has another slot than the one that waits.
    if (const std::int64_t first_pair = blocks % 2 == 0 ? pairs - 1 : 0; (slot_ + first_pair) % slots_ == waiting_slot_) ++slot_;
    for (std::int64_t i = 0, first = 0; i < blocks; ++i) {
      const bool ends = i + 1 == blocks;
      const std::int64_t last = ends ? steps_ : steps_ * (i + 1) / blocks;
      if (stops(t_.points, pairs * 2 * kTileRows * kBlockColumns * (last - first) * Kind::kTileK / kProductsPerUnit)) return false;
      ahead_ = Ahead{};
      if (g.is_first && (!ends || g.column + kBlockColumns < t_.n)) {
        const std::int64_t bytes = (ends ? steps_ / blocks : steps_ * (i + 2) / blocks - last) * kTileBytes;
        const std::int64_t turns = pairs * (last - first);
        ahead_.at = reinterpret_cast<const char*>(ends ? b + 2 * block_ : b + last * kTileElements);
        ahead_.block_bytes = block_ * std::int64_t{sizeof(Element)};
        ahead_.lines = (bytes / 64 + turns - 1) / turns;
      }
      // There and back, so that the sums of the pair at the turn stay in their tiles.
      const bool back = (blocks - 1 - i) % 2 != 0;
      const std::int64_t segment = first == 0 ? 0 : first / per_segment_;
      for (std::int64_t p = 0; p < pairs; ++p) {
        const bool goes_on = i > 0 && p == 0, stays = !ends && p + 1 == pairs;
        multiply_pair(g, 2 * (back ? pairs - 1 - p : p), {first, last, segment, b + first * kTileElements, goes_on, stays});
      }
      first = last;
    }
    waiting_slot_ = (slot_ + pairs - 1) % slots_;
    return true;
  }

  void multiply_pair(const Group& g, std::int64_t p, const Block& block) {
    const Sums next = {g.panels[p], g.panels[p + 1], g.column, lesser(t_.n - g.column, kBlockColumns),
                       slot((slot_ + p / 2) % slots_)};
    configure(next.first.rows, next.second.rows);
    multiply(next, block);
    if constexpr (Kind::kStoresWhole) {
      if (t_.whole) return;
    }
    if (block.last == steps_) {
      waiting_ = next;
      stored_ = 0;
    }
  }

  // Rows of the first and of the second tile of A. It takes as long as five steps.
  void configure(std::int64_t first, std::int64_t second) {
    if (first == rows0_ && (second == rows1_ || second == 0)) return;
    store_lower();
    rows0_ = first;
    rows1_ = second > 0 ? second : rows1_;
    TileConfig config;
    for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64;
    config.rows[0] = config.rows[1] = config.rows[4] = static_cast<std::uint8_t>(rows0_);
    config.rows[2] = config.rows[3] = config.rows[5] = static_cast<std::uint8_t>(rows1_);
    config.rows[6] = config.rows[7] = kTileRows;
    __asm__ volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
  }

  // sums += A B; the first step begins with 0. What is not there, the second panel or block of columns, is skipped. The upper tiles
  // are stored before the last products of the lower ones, and these in the next call behind its first products: the four of them
  // at once hold up the loads that follow. A few steps are not worth it; then the block is the only one.
  __attribute__((noinline)) void multiply(const Sums& next, const Block& block) {
    Steps s;
    s.two = next.second.rows > 0;
    s.wide = next.columns > kLanes;
    s.lda = t_.lda * std::int64_t{sizeof(Element)};
    s.b0 = block.b;
    s.b1 = block.b + block_;
    const Element* const a0 = rows_of(next.first);
    const Element* const a1 = s.two ? rows_of(next.second) : a0;
    const bool full = s.two && s.wide, edges = block.last - block.first >= kEdges;
    if (!edges) {
      store_lower();
      begin_tiles<0, 1>(next.sums, block.first == 0, s.wide);
      if (s.two) begin_tiles<2, 3>(next.sums + kPanelSums, block.first == 0, s.wide);
    }
    std::int64_t segment = block.segment, at = block.first - segment * per_segment_;
    // What waits is stored in 2^shift parts, each after some of the steps.
    const std::int64_t steps = block.last - block.first, waiting = waiting_.rows();
    const int shift = waiting > 0 && steps >> Kind::kPartsLog > 0 ? Kind::kPartsLog : 0;
    std::int64_t part = 1, part_end = block.first + (steps >> shift);
    for (std::int64_t step = block.first; step < block.last;) {
      s.p0 = a0 + t_.offsets[segment] + at * Kind::kTileK;
      s.p1 = a1 + t_.offsets[segment] + at * Kind::kTileK;
      const std::int64_t stop = lesser(lesser(step + per_segment_ - at, block.last), part_end);
      at += stop - step;
      if (edges && step == block.first) multiply_edge(s, next, block, step++);
      if (const std::int64_t middle = lesser(stop, edges ? block.last - 1 : stop) - step; middle > 0) {
        full ? multiply_steps<true>(s, middle) : multiply_steps<false>(s, middle);
        step += middle;
      }
      if (step < stop) multiply_edge(s, next, block, step++);
      if (at == per_segment_) {
        ++segment;
        at = 0;
      }
      if (step == part_end && shift > 0) {
        store_waiting(waiting * part >> shift);
        ++part;
        part_end = block.first + (steps * part >> shift);
      }
    }
    if (!edges) {
      store_tiles<0, 1>(tiles_out(next, block, false));
      if (s.two) store_tiles<2, 3>(tiles_out(next, block, true));
    }
    store_waiting(waiting);
  }

  // Where the next step reads.
  struct Steps {
    const Element *p0, *p1, *b0, *b1;
    std::int64_t lda;  // bytes
    bool two, wide;

    void advance() {
      p0 += Kind::kTileK;
      p1 += Kind::kTileK;
      b0 += kTileElements;
      b1 += kTileElements;
    }
  };

  void multiply_upper(const Steps& s, bool wide) {
    load_tile<6>(s.b0, 64);
    load_tile<4>(s.p0, s.lda);
    Kind::template dot<0, 4, 6>();
    if (!wide) return;
    load_tile<7>(s.b1, 64);
    Kind::template dot<1, 4, 7>();
  }
  void multiply_lower(const Steps& s, bool wide) {
    load_tile<5>(s.p1, s.lda);
    Kind::template dot<2, 5, 6>();
    if (wide) Kind::template dot<3, 5, 7>();
  }

  // The first or last step of a block, or both.
  void multiply_edge(Steps& s, const Sums& next, const Block& block, std::int64_t step) {
    const bool begins = step == block.first, begins_tiles = begins && !block.has_sums;
    const bool ends = step + 1 == block.last && !block.keeps_sums;
    if (begins_tiles) begin_tiles<0, 1>(next.sums, block.first == 0, s.wide);
    multiply_upper(s, s.wide);
    if (begins) store_lower();
    if (ends) store_tiles<0, 1>(tiles_out(next, block, false));
    if (s.two) {
      if (begins_tiles) begin_tiles<2, 3>(next.sums + kPanelSums, block.first == 0, s.wide);
      multiply_lower(s, s.wide);
      if (ends) lower_ = tiles_out(next, block, true);
    }
    ahead_.fetch(s.wide);
    s.advance();
  }

  // Full: with all four tiles.
  template <bool Full>
  void multiply_steps(Steps& steps, std::int64_t count) {
    Steps s = steps;
    Ahead ahead = ahead_;
    const bool two = Full || s.two, wide = Full || s.wide;
    for (std::int64_t i = 0; i < count; ++i) {
      multiply_upper(s, wide);
      ahead.fetch(wide);
      if (two) multiply_lower(s, wide);
      s.advance();
    }
    steps = s;
    ahead_ = ahead;
  }

  // Where the two tiles of a panel are stored; `to` is null where there are none.
  struct TilesOut {
    Sum* to = nullptr;
    std::int64_t step = 0;
    bool wide = false;
  };

  TilesOut tiles_out(const Sums& s, const Block& block, bool is_lower) const {
    const bool wide = s.columns > kLanes;
    if constexpr (Kind::kStoresWhole) {
      if (t_.whole && block.last == steps_) {
        const std::int64_t row = is_lower ? s.second.x : s.first.x;
        return {static_cast<Sum*>(t_.c) + row * t_.ldc + s.column, t_.ldc * std::int64_t{sizeof(Sum)}, wide};
      }
    }
    return {s.sums + (is_lower ? kPanelSums : 0), kSumStep, wide};
  }

  template <int Left, int Right>
  void begin_tiles(const Sum* sums, bool from_zero, bool wide) {
    if (from_zero) {
      zero_tile<Left>();
      zero_tile<Right>();
      return;
    }
    load_tile<Left>(sums, kSumStep);
    if (wide) load_tile<Right>(sums + kLanes, kSumStep);
  }

  template <int Left, int Right>
  void store_tiles(const TilesOut& out) {
    store_tile<Left>(out.to, out.step);
    if (out.wide) store_tile<Right>(out.to + kLanes, out.step);
  }

  void store_lower() {
    if (lower_.to != nullptr) store_tiles<2, 3>(lower_);
    lower_.to = nullptr;
  }

  // Stores the rows before `end` of the sums that wait.
  __attribute__((noinline)) void store_waiting(std::int64_t end) {
    const Sums& w = waiting_;
    while (stored_ < end) {
      const bool second = stored_ >= w.first.rows;
      const Panel& p = second ? w.second : w.first;
      const std::int64_t before = second ? w.first.rows : 0, row = stored_ - before, rows = lesser(end - before, p.rows) - row;
      store_({w.sums + (second ? kPanelSums : 0) + row * kBlockColumns, rows, p.line, p.x + row, w.column, w.columns});
      stored_ += rows;
    }
    if (stored_ == w.rows()) waiting_ = Sums{};
  }

  const Tile& t_;
  const typename Kind::Store store_;
  std::int64_t per_segment_, steps_, block_;  // steps of k; elements of a block of columns of B
  std::int64_t per_line_, panel_rows_, most_panels_;
  std::int64_t rows0_ = 0, rows1_ = 1;
  std::int64_t slot_ = 0;  // of the group's first two panels
  std::int64_t waiting_slot_ = -1;
  std::int64_t slots_;       // in use: the fewer, the nearer they are
  std::int64_t stored_ = 0;  // rows of those that wait
  Ahead ahead_;
  TilesOut lower_;  // of the last pair of panels, still in tiles 2 and 3
  Sums waiting_;
  Sum* const more_;  // the second half of the slots
  alignas(64) Sum sums_[kHalfOfSlots];
};

// The sums are in two functions' frames, of which none has more than 16 KiB.
template <typename Kind>
EVN_APART void run_amx(const typename Kind::Tile& tile, typename Kind::Sum* more) {
  AmxProduct<Kind>(tile, more).run();
}
template <typename Kind>
EVN_APART void run_amx(const typename Kind::Tile& tile) {
  alignas(64) typename Kind::Sum more[AmxProduct<Kind>::kHalfOfSlots];
  run_amx<Kind>(tile, more);
}

}  // namespace
}  // namespace evn::EVN_ISA
