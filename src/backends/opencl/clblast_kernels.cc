// MatMul and Gemm through CLBlast. They stand outside kernels/, whose tables hold for each device alike: ClBlast::kernel_for says
// where these are used. What CLBlast does not do (adding C, which may be broadcast, and the epilogue) follows in a kernel of our
// own.
#include "backends/opencl/clblast.h"
#include "backends/opencl/kernels/product.h"
#include "backends/opencl/kernels/support.h"
#include "ops/gemm.h"

namespace evn {
namespace {

constexpr OpenClFunction kFinish{"matmul", "finish_product"};

enum : int { kA, kB, kC };

struct State {
  ClBlastProduct call;
  Product finish;
};

Refusal supports_matmul(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  if (desc.inputs[kA].shape.rank() < 2) return "a vector";
  return desc.inputs[kB].shape.rank() != 2 ? "several right-hand matrices, or a vector" : nullptr;
}

Refusal supports_gemm(const OpDesc& desc) { return refuse_unless_float(desc); }

State& plan_common(const OpDesc& desc, KernelPlan* plan, std::int64_t m, std::int64_t n, std::int64_t k) {
  State& s = plan->state<State>();
  s.call = {m, n, k, false, false, 1.0f};
  s.finish = Product{};
  s.finish.m = m;
  s.finish.n = n;
  s.finish.alpha = 1.0f;
  plan->flops = 2.0 * static_cast<double>(k) * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
  return s;
}

void plan_matmul(const OpDesc& desc, KernelPlan* plan) {
  const Shape& a = desc.inputs[kA].shape;
  const Shape& b = desc.inputs[kB].shape;
  plan_common(desc, plan, a.elements(0, a.rank() - 1), b[1], b[0]);
}

void plan_gemm(const OpDesc& desc, KernelPlan* plan) {
  const Shape& a = desc.inputs[kA].shape;
  const Shape& y = desc.outputs[0].shape;
  const bool transpose_a = attr_int(*desc.node, GemmAttr::kTransA) != 0;
  State& s = plan_common(desc, plan, y[0], y[1], a[transpose_a ? 0 : 1]);
  s.call.transpose_a = transpose_a;
  s.call.transpose_b = attr_int(*desc.node, GemmAttr::kTransB) != 0;
  s.call.alpha = attr_float(*desc.node, GemmAttr::kAlpha);
  set_addend(desc, kC, attr_float(*desc.node, GemmAttr::kBeta), &s.finish);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  cl.multiply(s.call, args.inputs[kA], args.inputs[kB], args.outputs[0]);
  const Epilogue& epilogue = args.desc->node->epilogue;
  if (s.finish.has_c == 0 && epilogue.count == 0) return;
  const Buffer& c = s.finish.has_c != 0 ? args.inputs[kC] : args.inputs[kA];
  cl.run(kFinish, Grid{ceil_div(s.finish.n, static_cast<std::int64_t>(cl.lanes())), s.finish.m}, c, args.outputs[0], s.finish,
         epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "matmul_clblast",
     .op = "MatMul",
     .rank = 20,
     .supports = supports_matmul,
     .plan = plan_matmul,
     .run = run,
     .library = Products::kClBlast},
    {.name = "gemm_clblast",
     .op = "Gemm",
     .rank = 20,
     .supports = supports_gemm,
     .plan = plan_gemm,
     .run = run,
     .library = Products::kClBlast},
};

}  // namespace

std::span<const Kernel> clblast_kernels() { return kKernels; }

}  // namespace evn
