// MatMul and Gemm by a constant right-hand matrix, with operands of bfloat16 or float16 and float32 sums:
// gemm/packed_gemm_kernels.cc where a node may have it so. Rows of A are rounded as they are copied for a tile, which is some rows
// by some columns.
#include <algorithm>

#include "backends/cpu/bfloat/bfloat_plan.h"
#include "backends/cpu/support.h"
#include "base/cxx20.h"
#include "ops/gemm.h"

namespace evn {
namespace {

constexpr std::int64_t kFewest = 16;  // columns, and k: less wastes most of a tile

struct PackedGemmState {
  Isa isa;
  std::int64_t m, n, k, lda;
  std::int64_t init_row, init_column;
  float init_scale;
  bool in_place;
  PackedGemmTiling tiling;
};

bool is_gemm(const OpDesc& d) { return d.node->op_type == "Gemm"; }
bool trans_b(const OpDesc& d) { return is_gemm(d) && attr_int(*d.node, GemmAttr::kTransB) != 0; }

BfloatSource source_of(const OpDesc& d, const void* b) {
  const Shape& s = d.inputs[1].shape;
  const bool t = trans_b(d);
  BfloatSource from{static_cast<const float*>(b), t ? s[1] : 1, s[t ? 1 : 0], t ? 1 : s[1]};
  if (is_gemm(d)) from.scale = attr_float(*d.node, GemmAttr::kAlpha);
  return from;
}
std::int64_t columns_of(const OpDesc& d) { return d.inputs[1].shape[trans_b(d) ? 0 : 1]; }

Refusal supports(const OpDesc& d) {
  if (const Refusal refusal = refuses_half(d)) return refusal;
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.constant(1) == nullptr || d.inputs[1].shape.rank() != 2) return "the right-hand matrix must be a constant of rank 2";
  if (d.inputs[0].shape.rank() < 1) return "a scalar";
  if (is_gemm(d) && attr_int(*d.node, GemmAttr::kTransA) != 0) return "a transposed left-hand matrix";
  const Shape& b = d.inputs[1].shape;
  if (b[trans_b(d) ? 1 : 0] > kMostHalfDepth) return kTooDeep;
  return b[0] < kFewest || b[1] < kFewest ? "too narrow" : nullptr;
}

std::size_t prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const std::int64_t elements = bfloat_elements(half_loops(d), source_of(d, nullptr), columns_of(d));
  return static_cast<std::size_t>(checked_mul<std::int64_t>(elements, sizeof(std::uint16_t)));
}

std::uint64_t prepack_variant(const OpDesc& d, int) {
  const std::uint64_t alpha = bit_cast<std::uint32_t>(source_of(d, nullptr).scale);
  return alpha << 32 | (trans_b(d) ? 256u : 0u) | static_cast<std::uint64_t>(half_isa(d));
}

std::int64_t part_step(const OpDesc& d, int) { return trans_b(d) ? half_loops(d).lanes : 2; }

void prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_bfloat_gemm::Loops& loops = half_loops(d);
  const BfloatSource from = source_of(d, rows);
  auto* const to = static_cast<std::uint16_t*>(packed);
  if (trans_b(d)) {
    pack_bfloat_columns(loops, from, begin / loops.lanes, ceil_div(end, std::int64_t{loops.lanes}), columns_of(d), to);
  } else {
    pack_bfloat_rows(loops, from, begin, end, columns_of(d), to);
  }
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  s = PackedGemmState{};
  const Shape& a = d.inputs[0].shape;
  s.isa = half_isa(d);
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.isa);
  s.k = a[a.rank() - 1];
  s.m = a.elements(0, a.rank() - 1);
  s.n = columns_of(d);
  s.init_column = 1;
  s.init_scale = 1;
  if (d.has_input(2) && is_gemm(d)) {
    const Shape& c = d.inputs[2].shape;
    const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
    s.init_column = columns == 1 ? 0 : 1;
    s.init_row = (c.rank() == 2 ? c[0] : 1) == 1 ? 0 : columns;
    s.init_scale = attr_float(*d.node, GemmAttr::kBeta);
  }
  s.in_place = d.reads_16bit() && s.k % loops.k_step == 0;
  s.lda = s.k;
  if (!s.in_place) {
    s.lda = bfloat_padded(loops, s.k);
    if (s.lda / 32 % 2 == 0) s.lda += 32;  // an odd number of lines, or rows fall into few sets of the cache
  }
  s.tiling = tile_bfloat(loops, {s.m, s.n, s.k, 1, d.threads});
  p->tiles = s.m == 0 || s.n == 0 ? 0 : s.tiling.tiles();
  if (!s.in_place) p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul(s.tiling.rows, s.lda)) * sizeof(std::uint16_t);
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PackedGemmState>();
  const OpDesc& d = *args.desc;
  const simd_bfloat_gemm::Loops& loops = simd_bfloat_gemm::loops(s.isa);
  const float* const init = args.bias<float>(2);
  const bool is_16bit_residual = d.has_residual() && d.reads_16bit(d.fusion.residual);
  const std::size_t residual_element = is_16bit_residual ? sizeof(std::uint16_t) : sizeof(float);
  const char* const residual = args.residual<char>();
  const std::size_t element = d.writes_16bit() ? sizeof(std::uint16_t) : sizeof(float);
  const std::int64_t start = 0;
  auto* const copied = static_cast<std::uint16_t*>(args.thread_scratch);
  std::int64_t copied_row = -1;
  CancelPoints points = points_of(cancel);
  for_each_packed_gemm_tile(
      s.tiling, s.m, s.n, begin, end,
      [&](std::int64_t, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
        if (!s.in_place && copied_row != row) {
          const void* const from = d.reads_16bit() ? static_cast<const void*>(args.in<std::uint16_t>(0) + row * s.k)
                                                   : static_cast<const void*>(args.in<float>(0) + row * s.k);
          copy_bfloat_rows(loops, {from, d.reads_16bit(), s.k, rows, s.k}, s.lda, copied, &points);
        }
        if (points.stopped) return false;
        copied_row = row;
        simd_bfloat_gemm::Tile t{};
        t.a = s.in_place ? args.in<std::uint16_t>(0) + row * s.k : copied;
        t.lines = 1;
        t.width = rows;
        t.lda = s.lda;
        t.offsets = &start;
        t.segments = 1;
        t.padded = bfloat_padded(loops, s.k);
        t.b = args.pack<std::uint16_t>(1) + column * t.padded;
        t.n = columns;
        t.init = init == nullptr ? nullptr : init + row * s.init_row + column * s.init_column;
        t.init_row = s.init_row;
        t.init_column = s.init_column;
        t.init_scale = s.init_scale;
        t.residual = residual == nullptr ? nullptr : residual + static_cast<std::size_t>(row * s.n + column) * residual_element;
        t.residual_is_bfloat = is_16bit_residual;
        t.ldr = s.n;
        t.epilogue = epilogue_of(d);
        t.to_bfloat = d.writes_16bit();
        t.c = args.out<char>() + static_cast<std::size_t>(row * s.n + column) * element;
        t.ldc = s.n;
        t.points = &points;
        loops.run(t);
        return !cancel.stop();
      });
}

constexpr Kernel kernel(const char* name, const char* op, Precision operands) {
  return {.name = name,
          .op = op,
          .rank = operands == Precision::kBfloat16 ? 20 : 21,
          .supports = supports,
          .prepack_bytes = prepack_bytes,
          .prepack_variant = prepack_variant,
          .prepack = prepack_all<prepack>,
          .plan = plan,
          .run = run,
          .operands = operands,
          .prepack_parts = {.step = part_step, .run = prepack},
          .fusion = {.epilogue = kFusesBias | kFusesResidual, .storage_16bit = storage_16bit(operands)}};
}
constexpr Kernel kKernels[] = {
    kernel("matmul_bf16", "MatMul", Precision::kBfloat16),
    kernel("gemm_bf16", "Gemm", Precision::kBfloat16),
    kernel("matmul_fp16", "MatMul", Precision::kFloat16),
    kernel("gemm_fp16", "Gemm", Precision::kFloat16),
};

}  // namespace

extern const KernelFamily bfloat_gemm_kernels;
const KernelFamily bfloat_gemm_kernels = {kKernels};

}  // namespace evn
