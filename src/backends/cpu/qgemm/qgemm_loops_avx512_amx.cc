// The loops of qgemm/qgemm_loops.h by products of matrix tiles (AMX). Few rows leave tiles empty and are bound by reading B:
// vectors do them, from the same packed B.
#include "backends/cpu/qgemm/qgemm_tile.h"
#include "backends/cpu/simd/amx.h"

namespace evn::EVN_ISA {
namespace {

constexpr std::int64_t kFewRows = 4;

struct Bytes {
  using Tile = simd_qgemm::Tile;
  using Element = std::uint8_t;  // the bits of B, whose bytes are signed
  using Sum = std::int32_t;
  static constexpr std::int64_t kTileK = 64;
  static constexpr int kPartsLog = 0;  // a part of these costs more than it saves
  static constexpr bool kStoresWhole = false;

  template <int C, int A, int B>
  static void dot() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }

  struct SumBlock {
    const std::int32_t* sums;
    std::int64_t rows, line, x, column, columns;
  };

  class Store {
   public:
    explicit Store(const Tile& t) : t_(t) {}
    void operator()(const SumBlock& b) const { store_block(t_, {b.sums, kBlockColumns, b.rows, b.line, b.x, b.column, b.columns}); }

   private:
    const Tile& t_;
  };
};

void run(const Tile& t) {
  if (t.lines * t.width <= kFewRows) return run_vectors(t);
  sum_rows(t);
  if (has_stopped(t.points)) return;
  run_amx<Bytes>(t);
}

}  // namespace

extern const simd_qgemm::Loops loops_qgemm;
const simd_qgemm::Loops loops_qgemm = {
    .lanes = kLanes, .k_step = Bytes::kTileK, .tile_cost = 1.5e7, .run = run, .flip = flip_bytes};

}  // namespace evn::EVN_ISA
