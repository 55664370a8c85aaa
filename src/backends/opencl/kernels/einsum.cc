// Einsum of one or two operands and com.microsoft's FusedMatMul, of float32.
#include <algorithm>

#include "backends/opencl/kernels/support.h"
#include "ops/einsum.h"
#include "ops/infra/product.h"

namespace evn {
namespace {

constexpr OpenClFunction kEinsum{"einsum", "einsum"};
constexpr OpenClFunction kEinsumOne{"einsum", "einsum_one"};

constexpr int kOuter = kMaxRank - 1;

// The struct that einsum.cl takes, laid out as there.
struct Contract {
  std::int32_t kept, summed;
  float factor;
  std::int32_t padding;
  std::int64_t rows, inner, runs, length, chunk;
  std::int64_t inner_step[2], length_step[2];
  std::int64_t kept_dim[kOuter], summed_dim[kOuter];
  std::int64_t kept_step[2][kOuter], summed_step[2][kOuter];
};

// The innermost axis of a list, and the others.
void split_axes(const Shape& dims, const Strides* steps, int operands, std::int32_t* outer, std::int64_t* product,
                std::int64_t* inner, std::int64_t (&inner_step)[2], std::int64_t (&dim)[kOuter], std::int64_t (&step)[2][kOuter]) {
  *product = *inner = 1;
  if (dims.rank() == 0) return;
  *outer = dims.rank() - 1;
  *inner = dims[*outer];
  for (int i = 0; i < *outer; ++i) {
    dim[i] = dims[i];
    *product *= dims[i];
  }
  for (int n = 0; n < operands; ++n) {
    inner_step[n] = steps[n].step[*outer];
    std::copy_n(steps[n].step, *outer, step[n]);
  }
}

void plan_contraction(const OpDesc& desc, const Contraction& c, float factor, KernelPlan* plan) {
  Contract& p = plan->state<Contract>();
  p = Contract{};
  p.factor = factor;
  split_axes(c.kept, c.kept_steps, c.operands, &p.kept, &p.rows, &p.inner, p.inner_step, p.kept_dim, p.kept_step);
  split_axes(c.summed, c.summed_steps, c.operands, &p.summed, &p.runs, &p.length, p.length_step, p.summed_dim, p.summed_step);
  plan->flops = 2.0 * static_cast<double>(p.rows * p.inner) * static_cast<double>(p.runs * p.length);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Contract p = args.plan->state<Contract>();
  Launcher& cl = launcher(args);
  p.chunk = cl.is_cpu() ? std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(p.runs * p.length, 1)) : 1;
  const Grid grid{ceil_div(p.inner, cl.lanes()), ceil_div(p.rows, p.chunk)};
  const Epilogue& epilogue = args.desc->node->epilogue;
  if (args.inputs.size() == 1) return cl.run(kEinsumOne, grid, args.inputs[0], args.outputs[0], p, epilogue);
  cl.run(kEinsum, grid, args.inputs[0], args.inputs[1], args.outputs[0], p, epilogue);
}

// ---- Einsum ----

Refusal supports_einsum(const OpDesc& desc) {
  if (desc.inputs.size() > 2) return "only one or two operands";
  return refuse_unless_float(desc);
}

void plan_einsum(const OpDesc& desc, KernelPlan* plan) {
  plan_contraction(desc, einsum_contraction(*desc.node, desc.inputs), 1, plan);
}

// ---- FusedMatMul ----

Refusal supports_product(const OpDesc& desc) { return refuse_unless_float(desc); }

ProductSide side(const OpDesc& desc, bool is_left) {
  enum : int { kAlpha, kTransA, kTransB, kTransBatchA, kTransBatchB };
  const bool transposed = attr_int(*desc.node, is_left ? kTransA : kTransB) != 0;
  const bool outer_rows = attr_int(*desc.node, is_left ? kTransBatchA : kTransBatchB) != 0;
  return side_of(desc.inputs[is_left ? 0 : 1].shape, is_left, transposed, outer_rows);
}

// Over the axes of the batch, the rows and the columns.
void plan_product(const OpDesc& desc, KernelPlan* plan) {
  const ProductSide a = side(desc, true);
  const ProductSide b = side(desc, false);
  Contraction c;
  c.operands = 2;
  c.kept = broadcast_partial(a.batch, b.batch);
  c.kept_steps[0] = batch_steps_in(a, c.kept);
  c.kept_steps[1] = batch_steps_in(b, c.kept);
  c.kept_steps[0].step[c.kept.rank()] = a.row_step;
  c.kept.push_back(a.rows);
  c.kept_steps[1].step[c.kept.rank()] = b.column_step;
  c.kept.push_back(b.columns);
  c.summed = {a.columns};
  c.summed_steps[0].step[0] = a.column_step;
  c.summed_steps[1].step[0] = b.row_step;
  plan_contraction(desc, c, attr_float(*desc.node, 0), plan);
}

constexpr Kernel kKernels[] = {
    {.name = "einsum", .op = "Einsum", .rank = 10, .supports = supports_einsum, .plan = plan_einsum, .run = run},
    {.name = "fused_matmul",
     .op = "FusedMatMul",
     .domain = "com.microsoft",
     .rank = 10,
     .supports = supports_product,
     .plan = plan_product,
     .run = run},
};

}  // namespace

extern const KernelFamily einsum_opencl_kernels;
const KernelFamily einsum_opencl_kernels = {kKernels};

}  // namespace evn
