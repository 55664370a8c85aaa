// MatMul and Gemm of training with operands of float16 on any CPU: they are rounded as blocks of them are copied, and multiplied as
// float32, whose products of two float16 are exact. A tile is some rows by some columns of one product.
#include <algorithm>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/gemm/dynamic_gemm.h"
#include "backends/cpu/gemm/gemm_loops.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kBlock = 256;    // of k
constexpr std::int64_t kColumns = 512;  // of a tile, at most
constexpr std::int64_t kRows = 256;     // of A, copied at a time

struct State {
  Isa isa;
  DynamicGemm g;
  std::int64_t block, rows;  // the largest block of k and of rows
  std::int64_t a_at, b_at;   // in floats of a thread's memory, where simd_gemm's buffer is first
};

constexpr std::int64_t kLineFloats = 16;

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<State>();
  s.isa = cpu_isa();
  plan_dynamic_gemm(d, kColumns, &s.g, p);
  if (p->tiles == 0) return;
  s.block = std::min(kBlock, s.g.k);
  s.rows = std::min(kRows, s.g.rows);
  s.a_at = round_up(simd_gemm::buffer_floats(simd_gemm::loops(s.isa), s.g.a_turned ? s.rows : 0), kLineFloats);
  s.b_at = s.a_at + round_up(s.rows * s.block, kLineFloats);
  p->thread_scratch_bytes = static_cast<std::size_t>(s.b_at + s.block * s.g.columns) * sizeof(float);
}

class Tiles {
 public:
  Tiles(const KernelArgs& args, CancelPoints* points)
      : args_(args),
        s_(args.plan->state<State>()),
        round_(simd_elementwise::loops(s_.isa)),
        buffer_(static_cast<float*>(args.thread_scratch)),
        a_(buffer_ + s_.a_at),
        b_(buffer_ + s_.b_at),
        points_(points) {}

  void run(std::int64_t index) {
    const DynamicGemm& g = s_.g;
    const DynamicGemmTile t = dynamic_gemm_tile(g, args_, index);
    std::int64_t k = 0;
    do {
      const std::int64_t depth = std::min(s_.block, g.k - k);
      copy(t.b, g.b_turned, g.ldb, k, depth, t.columns, b_);
      for (std::int64_t row = 0; row < t.rows && !points_->stopped; row += s_.rows) {
        const std::int64_t rows = std::min(s_.rows, t.rows - row);
        copy(t.a + row * (g.a_turned ? 1 : g.lda), !g.a_turned, g.lda, k, depth, rows, a_);
        if (!points_->stopped) multiply(t, row, rows, k, depth);
      }
      k += depth;
    } while (k < g.k && !points_->stopped);
  }

 private:
  const KernelArgs& args_;
  const State& s_;
  const simd_elementwise::Loops& round_;
  float *const buffer_, *const a_, *const b_;
  CancelPoints* const points_;

  // A block of `depth` by `others` elements, rounded; the k of one of the others lie together, or the others of one k do.
  void copy(const float* from, bool k_together, std::int64_t ld, std::int64_t k, std::int64_t depth, std::int64_t others,
            float* to) {
    const std::int64_t lines = k_together ? others : depth, length = k_together ? depth : others;
    from += k_together ? k : k * ld;
    std::uint16_t halves[kColumns];
    for (std::int64_t i = 0; i < lines && !stops(points_, 2 * length); ++i, from += ld, to += length) {
      round_.narrow_half(from, halves, length);
      round_.widen_half(halves, to, length);
    }
  }

  void multiply(const DynamicGemmTile& tile, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth) {
    const DynamicGemm& g = s_.g;
    simd_gemm::Tile t{};
    t.m = rows;
    t.n = tile.columns;
    t.k = depth;
    t.a_kind = g.a_turned ? simd_gemm::AKind::kColumns : simd_gemm::AKind::kRows;
    t.a = a_;
    t.lda = g.a_turned ? rows : depth;
    t.b_kind = g.b_turned ? simd_gemm::BKind::kColumns : simd_gemm::BKind::kRows;
    t.b = b_;
    t.ldb = g.b_turned ? depth : tile.columns;
    t.c = tile.c + row * g.n;
    t.ldc = g.n;
    if (k > 0) {  // sums go on from what is there
      t.init = t.c;
      t.init_row = g.n;
      t.init_column = 1;
      t.init_scale = 1;
    } else if (tile.init != nullptr) {
      t.init = tile.init + row * g.init_row;
      t.init_row = g.init_row;
      t.init_column = g.init_column;
      t.init_scale = g.init_scale;
    }
    if (k + depth == g.k) t.epilogue = epilogue_of(*args_.desc);
    t.buffer = buffer_;
    t.points = points_;
    simd_gemm::loops(s_.isa).run(t);
  }
};

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  CancelPoints points = points_of(cancel);
  Tiles tiles(args, &points);
  for (std::int64_t i = begin; i < end && !cancel.stop() && !points.stopped; ++i) tiles.run(i);
}

constexpr Kernel kernel(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .rank = 35,
          .supports = refuse_dynamic_gemm,
          .plan = plan,
          .run = run,
          .operands = Precision::kFloat16Operands};
}
constexpr Kernel kKernels[] = {kernel("matmul_dynamic_half", "MatMul"), kernel("gemm_dynamic_half", "Gemm")};

}  // namespace

extern const KernelFamily half_gemm_kernels;
const KernelFamily half_gemm_kernels = {kKernels};

}  // namespace evn
