// MatMul and Gemm, float32, as gemm/packed_gemm_kernels.cc does not take them: the right-hand matrix is computed, has batch axes,
// or the left one is transposed. Blocks of the right-hand matrix are packed as they are used. A tile is a range of rows and columns
// of one product.

#include "backends/cpu/gemm/pack.h"
#include "backends/cpu/support.h"
#include "base/cxx20.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

namespace evn {
namespace {

using simd_gemm::AKind;
using simd_gemm::BKind;

struct PackedGemmState {
  Isa isa;
  AKind a_kind;
  BKind b_kind;
  std::int32_t batch_rank;
  std::int64_t m, n, k, lda, ldb;
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];  // in elements, 0 where broadcast
  std::int64_t init_row, init_column;
  float init_scale;
  Tiling tiling;
};

// ------------------------------------------------------------------------------------------------------- MatMul --

Refusal matmul_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.inputs[0].shape.rank() < 1 || d.inputs[1].shape.rank() < 1) return "a scalar";
  return nullptr;
}

void finish_plan(const OpDesc& d, std::int64_t outer, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  s.tiling = tile_packed_gemm(loops, s.m, s.n, s.k, outer, s.b_kind == BKind::kPacked ? 0 : 64);
  p->tiles = s.m == 0 || s.n == 0 ? 0 : checked_mul(outer, s.tiling.tiles());
  const std::int64_t floats = simd_gemm::buffer_floats(loops, s.a_kind == AKind::kColumns ? s.tiling.rows : 0);
  p->thread_scratch_bytes = static_cast<std::size_t>(floats) * sizeof(float);
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void matmul_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  s = PackedGemmState{};
  const Shape& a = d.inputs[0].shape;
  const Shape& b = d.inputs[1].shape;
  s.isa = cpu_isa();
  s.k = a[a.rank() - 1];
  s.m = a.rank() >= 2 ? a[a.rank() - 2] : 1;
  s.n = b.rank() >= 2 ? b[b.rank() - 1] : 1;
  s.lda = s.k;
  s.a_kind = AKind::kRows;
  std::int64_t outer = 1;
  s.b_kind = BKind::kRows;
  s.ldb = s.n;
  const int longest = a.rank() > b.rank() ? a.rank() : b.rank();
  s.batch_rank = longest > 2 ? longest - 2 : 0;
  matmul_batch_strides(a, s.batch_rank, matmul_matrix_elements(a), s.a_stride);
  matmul_batch_strides(b, s.batch_rank, matmul_matrix_elements(b), s.b_stride);
  for (int i = 0; i < s.batch_rank; ++i) {
    s.batch[i] = d.outputs[0].shape[i];
    outer = checked_mul(outer, s.batch[i]);
  }
  finish_plan(d, outer, p);
}

// --------------------------------------------------------------------------------------------------------- Gemm --

Refusal gemm_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.constant(1) == nullptr && attr_float(*d.node, GemmAttr::kAlpha) != 1.0f) return "alpha of a matrix that is not constant";
  return nullptr;
}

std::size_t gemm_prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& b = d.inputs[1].shape;
  const bool transposed = attr_int(*d.node, GemmAttr::kTransB) != 0;
  return static_cast<std::size_t>(checked_mul<std::int64_t>(
      packed_b_floats(simd_gemm::loops(cpu_isa()), b[transposed ? 0 : 1], b[transposed ? 1 : 0]), sizeof(float)));
}

std::uint64_t gemm_prepack_variant(const OpDesc& d, int) {
  const std::uint64_t alpha = bit_cast<std::uint32_t>(attr_float(*d.node, GemmAttr::kAlpha));
  return alpha << 32 | (attr_int(*d.node, GemmAttr::kTransB) != 0 ? 256u : 0u) | static_cast<std::uint64_t>(cpu_isa());
}

void gemm_prepack(const OpDesc& d, int, void* packed) {
  const Shape& b = d.inputs[1].shape;
  const bool transposed = attr_int(*d.node, GemmAttr::kTransB) != 0;
  const std::int64_t n = b[transposed ? 0 : 1];
  const std::int64_t k = b[transposed ? 1 : 0];
  pack_b(simd_gemm::loops(cpu_isa()), d.constant(1)->as<float>(), transposed ? 1 : n, transposed ? k : 1, n, k,
         attr_float(*d.node, GemmAttr::kAlpha), static_cast<float*>(packed));
}

void gemm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  s = PackedGemmState{};
  const Shape& a = d.inputs[0].shape;
  const bool trans_a = attr_int(*d.node, GemmAttr::kTransA) != 0;
  const bool trans_b = attr_int(*d.node, GemmAttr::kTransB) != 0;
  s.isa = cpu_isa();
  s.m = d.outputs[0].shape[0];
  s.n = d.outputs[0].shape[1];
  s.k = a[trans_a ? 0 : 1];
  s.lda = a[1];
  s.ldb = d.inputs[1].shape[1];
  s.a_kind = trans_a ? AKind::kColumns : AKind::kRows;
  s.b_kind = d.constant(1) != nullptr ? BKind::kPacked : trans_b ? BKind::kColumns : BKind::kRows;
  if (d.has_input(2)) {
    const Shape& c = d.inputs[2].shape;
    const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
    const std::int64_t rows = c.rank() == 2 ? c[0] : 1;
    s.init_column = columns == 1 ? 0 : 1;
    s.init_row = rows == 1 ? 0 : columns;
    s.init_scale = attr_float(*d.node, GemmAttr::kBeta);
  }
  finish_plan(d, 1, p);
}

// ---------------------------------------------------------------------------------------------------------- run --

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PackedGemmState>();
  const simd_gemm::Loops& loops = simd_gemm::loops(s.isa);
  const float* init = args.desc->has_input(2) ? args.in<float>(2) : nullptr;
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    // Rows change fastest, so that tiles that follow each other share their part of B.
    const std::int64_t row_tile = index % s.tiling.row_tiles;
    const std::int64_t column_tile = index / s.tiling.row_tiles % s.tiling.column_tiles;
    const std::int64_t product = index / s.tiling.tiles();
    const float* a = args.in<float>(0);
    const float* b = s.b_kind == BKind::kPacked ? args.pack<float>(1) : args.in<float>(1);
    for (std::int64_t i = s.batch_rank - 1, rest = product; i >= 0; --i) {
      const std::int64_t at = rest % s.batch[i];
      rest /= s.batch[i];
      a += at * s.a_stride[i];
      b += at * s.b_stride[i];
    }
    const std::int64_t row = row_tile * s.tiling.rows;
    const std::int64_t column = column_tile * s.tiling.columns;

    simd_gemm::Tile t{};
    t.m = s.tiling.row_end(row_tile, s.m) - row;
    t.n = s.tiling.column_end(column_tile, s.n) - column;
    t.k = s.k;
    t.a_kind = s.a_kind;
    t.a = a + (s.a_kind == AKind::kColumns ? row : row * s.lda);
    t.lda = s.lda;
    t.b_kind = s.b_kind;
    t.b = b + (s.b_kind == BKind::kPacked ? column * s.k : s.b_kind == BKind::kColumns ? column * s.ldb : column);
    t.ldb = s.ldb;
    t.c = args.out<float>() + (product * s.m + row) * s.n + column;
    t.ldc = s.n;
    t.init = init == nullptr ? nullptr : init + row * s.init_row + column * s.init_column;
    t.init_row = s.init_row;
    t.init_column = s.init_column;
    t.init_scale = s.init_scale;
    t.epilogue = epilogue_of(*args.desc);
    t.buffer = static_cast<float*>(args.thread_scratch);
    t.points = &points;
    loops.run(t);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_gemm", .op = "MatMul", .rank = 10, .supports = matmul_supports, .plan = matmul_plan, .run = run},
    {.name = "gemm_gemm",
     .op = "Gemm",
     .rank = 10,
     .supports = gemm_supports,
     .prepack_bytes = gemm_prepack_bytes,
     .prepack_variant = gemm_prepack_variant,
     .prepack = gemm_prepack,
     .plan = gemm_plan,
     .run = run},
};

}  // namespace

extern const KernelFamily matmul_kernels;
const KernelFamily matmul_kernels = {kKernels};

}  // namespace evn
