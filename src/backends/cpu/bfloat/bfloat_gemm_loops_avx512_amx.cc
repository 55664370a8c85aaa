// The loops of bfloat/bfloat_gemm_loops.h by products of matrix tiles (AMX). Few rows are no case of their own, though tiles are
// half empty then: vdpbf16ps adds in another order, and a row's result must not depend on how many there are.
#include "backends/cpu/bfloat/bfloat_gemm_tile.h"
#include "backends/cpu/simd/amx.h"

namespace evn::EVN_ISA {
namespace {

struct Bfloat {
  using Tile = simd_bfloat_gemm::Tile;
  using Element = std::uint16_t;
  using Sum = float;
  static constexpr std::int64_t kTileK = 32;
  static constexpr int kPartsLog = 2;
  static constexpr bool kStoresWhole = true;

  template <int C, int A, int B>
  static void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }

  class Store {
   public:
    explicit Store(const Tile& t) : t_(t), chain_(split_chain(t.epilogue)) {}
    void operator()(const SumBlock& b) const { store_sums(t_, chain_, b); }

   private:
    const Tile& t_;
    const Chain chain_;
  };
};

void run(const Tile& t) { run_amx<Bfloat>(t); }

}  // namespace

extern const simd_bfloat_gemm::Loops loops_bfloat_gemm;
const simd_bfloat_gemm::Loops loops_bfloat_gemm = {
    .lanes = kLanes, .k_step = Bfloat::kTileK, .tile_cost = 8e6, .run = run, .convert = convert, .copy = copy};

}  // namespace evn::EVN_ISA
