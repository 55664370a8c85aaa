// MatMul and Gemm by a right-hand matrix that is computed, or with a left-hand one that is transposed, with operands of bfloat16
// and float32 sums: gemm/matmul_kernels.cc where a node may have it so. A tile is some rows by some columns of one product, and
// goes through k block by block: it packs the columns of B, and then some rows of A at a time.
#include <algorithm>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/gemm/dynamic_gemm.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kBlock = 512;    // of k: the columns of B that a micro-tile has stay in L1 or come from L2 in time
constexpr std::int64_t kColumns = 512;  // of a tile, at most
constexpr std::int64_t kRows = 96;      // of A, packed at a time

struct State {
  Isa isa;
  DynamicGemm g;
  std::int64_t block, lda;  // the largest block of k; elements from one packed row of A to the next
  std::int64_t b_elements;  // of the packed columns
};

Refusal supports(const OpDesc& d) {
  if (const Refusal refusal = refuses_half(d)) return refusal;
  if (d.constant(1) != nullptr) return "the right-hand matrix is constant";
  if (const Refusal refusal = refuse_dynamic_gemm(d)) return refusal;
  return is_narrow_gemm(d) ? "too narrow" : nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s.isa = half_isa(d);
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.isa);
  plan_dynamic_gemm(d, kColumns, &s.g, p);
  if (p->tiles == 0) return;
  s.block = bfloat_padded(loops, std::min(kBlock, s.g.k));
  s.lda = (ceil_div(s.block, std::int64_t{32}) | 1) * 32;  // an odd number of lines, or rows fall into few sets of the cache
  const std::int64_t lanes = loops.lanes, rows = std::min(kRows, s.g.rows);
  s.b_elements = ceil_div(s.g.columns, lanes) * lanes * s.block;
  p->thread_scratch_bytes = static_cast<std::size_t>(s.b_elements + rows * s.lda) * sizeof(std::uint16_t);
}

// Tiles of one range.
class Tiles {
 public:
  Tiles(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<State>()),
        loops_(simd_bfloat_gemm::loops(s_.isa)),
        pack_(simd_bfloat_gemm::loops(Isa::k_avx512_bf16)),
        b_(static_cast<std::uint16_t*>(args.thread_scratch)),
        a_(b_ + s_.b_elements),
        points_(points) {}

  void run(std::int64_t index) {
    const DynamicGemmTile t = dynamic_gemm_tile(s_.g, args_, index);
    std::int64_t k = 0;
    do {
      const std::int64_t depth = std::min(s_.block, s_.g.k - k);
      pack_columns(t, k, depth);
      for (std::int64_t row = 0; row < t.rows && !points_->stopped; row += kRows) {
        const std::int64_t rows = std::min(kRows, t.rows - row);
        pack_rows(t, row, rows, k, depth);
        if (!points_->stopped) multiply(t, row, rows, k, depth);
      }
      k += depth;
    } while (k < s_.g.k && !points_->stopped);
  }

 private:
  const KernelArgs& args_;
  const State& s_;
  const simd_bfloat_gemm::Loops &loops_, &pack_;
  std::uint16_t *const b_, *const a_;
  CancelPoints* const points_;
  const float* packed_ = nullptr;  // columns that are packed, where k has one block

  void pack_columns(const DynamicGemmTile& t, std::int64_t k, std::int64_t depth) {
    if (packed_ == t.b) return;
    const std::int64_t padded = bfloat_padded(loops_, depth), block = padded * loops_.lanes;
    if (s_.g.b_turned) {
      pack_.pack_columns(t.b + k, s_.g.ldb, depth, t.columns, padded, block, b_, points_);
    } else {
      pack_.pack_rows(t.b + k * s_.g.ldb, s_.g.ldb, depth, t.columns, padded, block, b_, points_);
    }
    packed_ = depth == s_.g.k ? t.b : nullptr;
  }

  void pack_rows(const DynamicGemmTile& t, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth) {
    const std::int64_t padded = bfloat_padded(loops_, depth);
    if (s_.g.a_turned) {
      pack_.turn_rows(t.a + k * s_.g.lda + row, s_.g.lda, depth, rows, padded, s_.lda, a_, points_);
    } else {
      copy_bfloat_rows(loops_, {t.a + row * s_.g.lda + k, false, s_.g.lda, rows, depth}, s_.lda, a_, points_);
    }
  }

  void multiply(const DynamicGemmTile& tile, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth) {
    const std::int64_t start = 0;
    simd_bfloat_gemm::Tile t{};
    t.a = a_;
    t.lines = 1;
    t.width = rows;
    t.lda = s_.lda;
    t.offsets = &start;
    t.segments = 1;
    t.padded = bfloat_padded(loops_, depth);
    t.b = b_;
    t.n = tile.columns;
    t.c = tile.c + row * s_.g.n;
    t.ldc = s_.g.n;
    if (k > 0) {  // sums go on from what is there
      t.init = static_cast<const float*>(t.c);
      t.init_row = s_.g.n;
      t.init_column = 1;
      t.init_scale = 1;
    } else if (tile.init != nullptr) {
      t.init = tile.init + row * s_.g.init_row;
      t.init_row = s_.g.init_row;
      t.init_column = s_.g.init_column;
      t.init_scale = s_.g.init_scale;
    }
    if (k + depth == s_.g.k) t.epilogue = epilogue_of(*args_.desc);
    t.whole = t.init == nullptr && t.epilogue == nullptr && tile.columns % loops_.lanes == 0;
    t.points = points_;
    loops_.run(t);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Tiles tiles(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tiles.run(i);
}

constexpr Kernel kernel(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 18, .supports = supports, .plan = plan, .run = run, .operands = Precision::kBfloat16};
}
constexpr Kernel kKernels[] = {kernel("matmul_dynamic_bf16", "MatMul"), kernel("gemm_dynamic_bf16", "Gemm")};

}  // namespace

extern const KernelFamily bfloat_dynamic_gemm_kernels;
const KernelFamily bfloat_dynamic_gemm_kernels = {kKernels};

}  // namespace evn
