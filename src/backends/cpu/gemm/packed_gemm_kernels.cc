// MatMul and Gemm, float32, by a constant right-hand matrix that is packed once; all batch axes of the left one are rows. A tile is
// a range of rows and columns.

#include "backends/cpu/gemm/packed_gemm_plan.h"
#include "backends/cpu/support.h"
#include "base/cxx20.h"
#include "ops/gemm.h"

namespace evn {
namespace {

struct PackedGemmState {
  Isa isa;
  std::int64_t m, n, k;
  std::int64_t init_row, init_column;
  float init_scale;
  PackedGemmTiling tiling;
};

void finish_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  s.tiling = tile_packed_gemm(simd_packed_gemm::loops(s.isa), {s.m, s.n, s.k, 1, false, d.threads});
  p->tiles = s.m == 0 || s.n == 0 ? 0 : s.tiling.tiles();
  p->flops = 2.0 * static_cast<double>(s.k) * static_cast<double>(d.outputs[0].shape.elements());
  p->bytes = bytes_of(d);
}

// ------------------------------------------------------------------------------------------------------- MatMul --

Refusal matmul_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.constant(1) == nullptr || d.inputs[1].shape.rank() != 2) return "the right-hand matrix must be a constant of rank 2";
  if (d.inputs[0].shape.rank() < 1) return "a scalar";
  return nullptr;
}

std::size_t matmul_prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& b = d.inputs[1].shape;
  return static_cast<std::size_t>(
      checked_mul<std::int64_t>(packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), b[1], b[0]), sizeof(float)));
}

std::uint64_t matmul_prepack_variant(const OpDesc&, int) { return static_cast<std::uint64_t>(cpu_isa()); }

std::int64_t matmul_part_step(const OpDesc&, int) { return 1; }

void matmul_prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const Shape& b = d.inputs[1].shape;
  pack_packed_gemm(simd_packed_gemm::loops(cpu_isa()), {static_cast<const float*>(rows), 1, end - begin, b[1], 1},
                   {begin, b[0], 0, b[1], b[1]}, 1.0f, static_cast<float*>(packed));
}

void matmul_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  const Shape& a = d.inputs[0].shape;
  s = PackedGemmState{};
  s.isa = cpu_isa();
  s.m = a.elements(0, a.rank() - 1);
  s.n = d.inputs[1].shape[1];
  s.k = a[a.rank() - 1];
  s.init_column = 1;
  s.init_scale = 1;
  finish_plan(d, p);
}

// --------------------------------------------------------------------------------------------------------- Gemm --

bool trans_b(const OpDesc& d) { return attr_int(*d.node, GemmAttr::kTransB) != 0; }

Refusal gemm_supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  if (d.constant(1) == nullptr) return "the right-hand matrix must be constant";
  if (attr_int(*d.node, GemmAttr::kTransA) != 0) return "a transposed left-hand matrix";
  return nullptr;
}

std::size_t gemm_prepack_bytes(const OpDesc& d, int input) {
  if (input != 1) return 0;
  const Shape& b = d.inputs[1].shape;
  const bool t = trans_b(d);
  return static_cast<std::size_t>(
      checked_mul<std::int64_t>(packed_gemm_floats(simd_packed_gemm::loops(cpu_isa()), b[t ? 0 : 1], b[t ? 1 : 0]), sizeof(float)));
}

std::uint64_t gemm_prepack_variant(const OpDesc& d, int) {
  const std::uint64_t alpha = bit_cast<std::uint32_t>(attr_float(*d.node, GemmAttr::kAlpha));
  return alpha << 32 | (trans_b(d) ? 256u : 0u) | static_cast<std::uint64_t>(cpu_isa());
}

std::int64_t gemm_part_step(const OpDesc& d, int) { return trans_b(d) ? simd_packed_gemm::loops(cpu_isa()).lanes : 1; }

void gemm_prepack(const OpDesc& d, int, const void* rows, std::int64_t begin, std::int64_t end, void* packed) {
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(cpu_isa());
  const Shape& b = d.inputs[1].shape;
  const float alpha = attr_float(*d.node, GemmAttr::kAlpha);
  const auto* const from = static_cast<const float*>(rows);
  auto* const to = static_cast<float*>(packed);
  if (trans_b(d)) {
    pack_packed_gemm(loops, {from, 1, b[1], 1, b[1]}, {0, b[1], begin, end, b[0]}, alpha, to);
  } else {
    pack_packed_gemm(loops, {from, 1, end - begin, b[1], 1}, {begin, b[0], 0, b[1], b[1]}, alpha, to);
  }
}

void gemm_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<PackedGemmState>();
  const Shape& a = d.inputs[0].shape;
  s = PackedGemmState{};
  s.isa = cpu_isa();
  s.m = d.outputs[0].shape[0];
  s.n = d.outputs[0].shape[1];
  s.k = a[1];
  s.init_column = 1;
  s.init_scale = 1;
  if (d.has_input(2)) {
    const Shape& c = d.inputs[2].shape;
    const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
    const std::int64_t rows = c.rank() == 2 ? c[0] : 1;
    s.init_column = columns == 1 ? 0 : 1;
    s.init_row = rows == 1 ? 0 : columns;
    s.init_scale = attr_float(*d.node, GemmAttr::kBeta);
  }
  finish_plan(d, p);
}

// ---------------------------------------------------------------------------------------------------------- run --

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<PackedGemmState>();
  const OpDesc& d = *args.desc;
  const simd_packed_gemm::Loops& loops = simd_packed_gemm::loops(s.isa);
  const float* const init = args.bias<float>(2);
  const float* const residual = args.residual<float>();
  CancelPoints points = points_of(cancel);
  for_each_packed_gemm_tile(s.tiling, s.m, s.n, begin, end,
                            [&](std::int64_t, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
                              simd_packed_gemm::Tile t{};
                              t.large_l2 = has_large_l2();
                              t.m = rows;
                              t.n = columns;
                              t.k = s.k;
                              t.a = args.in<float>(0) + row * s.k;
                              t.lda = s.k;
                              t.b = args.pack<float>(1) + column * s.k;
                              t.c = args.out<float>() + row * s.n + column;
                              t.ldc = s.n;
                              t.init = init == nullptr ? nullptr : init + row * s.init_row + column * s.init_column;
                              t.init_row = s.init_row;
                              t.init_column = s.init_column;
                              t.init_scale = s.init_scale;
                              t.far = is_far(args);
                              t.residual = residual == nullptr ? nullptr : residual + row * s.n + column;
                              t.ldr = s.n;
                              t.epilogue = epilogue_of(d);
                              t.points = &points;
                              loops.run(t);
                              return !cancel.stop();
                            });
}

constexpr std::uint8_t kFuses = kFusesBias | kFusesResidual;
constexpr Kernel kKernels[] = {
    {.name = "matmul_packed",
     .op = "MatMul",
     .rank = 15,
     .supports = matmul_supports,
     .prepack_bytes = matmul_prepack_bytes,
     .prepack_variant = matmul_prepack_variant,
     .prepack = prepack_all<matmul_prepack>,
     .plan = matmul_plan,
     .run = run,
     .prepack_parts = {.step = matmul_part_step, .run = matmul_prepack},
     .fusion = {.epilogue = kFuses}},
    {.name = "gemm_packed",
     .op = "Gemm",
     .rank = 15,
     .supports = gemm_supports,
     .prepack_bytes = gemm_prepack_bytes,
     .prepack_variant = gemm_prepack_variant,
     .prepack = prepack_all<gemm_prepack>,
     .plan = gemm_plan,
     .run = run,
     .prepack_parts = {.step = gemm_part_step, .run = gemm_prepack},
     .fusion = {.epilogue = kFuses}},
};

}  // namespace

extern const KernelFamily packed_gemm_kernels;
const KernelFamily packed_gemm_kernels = {kKernels};

}  // namespace evn
