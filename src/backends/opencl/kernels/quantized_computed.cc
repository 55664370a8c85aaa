// QLinearMatMul, MatMulInteger and MatMulIntegerToFloat by right-hand matrices that are computed, or several. Scales and zero
// points are one constant number each.
#include "backends/opencl/kernels/quantized.h"
#include "ops/matmul.h"

namespace evn {
namespace {

constexpr OpenClFunction kMultiply{"quantized_product", "multiply_computed"};
constexpr std::int64_t kRows = 4;  // of a work item

// The inputs' numbers; -1: the operator has none.
struct Inputs {
  int b, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, bias;
};

Inputs inputs_of(const OpDesc& desc) {
  if (desc.node->op_type == "MatMulInteger") return {1, -1, 2, -1, 3, -1, -1, -1};
  if (desc.node->op_type == "MatMulIntegerToFloat") return {1, 2, 4, 3, 5, -1, -1, 6};
  return {3, 1, 2, 4, 5, 6, 7, -1};
}

// The struct that quantized_product.cl takes, laid out as there.
struct Params {
  std::int64_t m, n, k, a_at, b_at, y_at;
  std::int32_t zero_a, zero_b, shift_a, shift_b;  // shift: 24 where the bytes are signed
  float scale;
  std::int32_t padding;
};

struct State {
  Params params;
  QuantizedOutput output;
  std::int32_t rank;
  std::int64_t batch[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];
};
static_assert(sizeof(State) <= KernelPlan::kStateBytes);

Refusal supports(const OpDesc& desc) {
  const Inputs in = inputs_of(desc);
  if (desc.inputs[0].shape.rank() < 1 || desc.inputs[static_cast<std::size_t>(in.b)].shape.rank() < 2)
    return "a vector on the right";
  for (const int i : {in.a_scale, in.a_zero, in.b_scale, in.b_zero, in.y_scale, in.y_zero}) {
    if (i >= 0 && (!is_constant(desc, i) || !is_one(desc, i))) return "scales and zero points must be one constant number";
  }
  for (const int i : {in.a_scale, in.b_scale, in.y_scale}) {
    if (const Refusal refusal = i < 0 ? nullptr : refuse_unless_float_scale(desc, i)) return refusal;
  }
  if (in.bias >= 0 && desc.has_input(in.bias)) return "a bias";
  const bool to_floats = desc.outputs[0].dtype == DType::kFloat32;
  return to_floats || desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Inputs in = inputs_of(desc);
  const TensorDesc &a = desc.inputs[0], &b = desc.inputs[static_cast<std::size_t>(in.b)];
  State& s = plan->state<State>();
  Params& p = s.params;
  p.m = a.shape.rank() == 1 ? 1 : a.shape[a.shape.rank() - 2];
  p.k = a.shape[a.shape.rank() - 1];
  p.n = b.shape[b.shape.rank() - 1];
  p.zero_a = byte_of(desc, in.a_zero);
  p.zero_b = byte_of(desc, in.b_zero);
  p.shift_a = a.dtype == DType::kInt8 ? 24 : 0;
  p.shift_b = b.dtype == DType::kInt8 ? 24 : 0;
  s.rank = std::max(std::max(a.shape.rank(), b.shape.rank()) - 2, 0);
  matmul_batch_strides(a.shape, s.rank, matmul_matrix_elements(a.shape), s.a_stride);
  matmul_batch_strides(b.shape, s.rank, matmul_matrix_elements(b.shape), s.b_stride);
  for (int i = 0; i < s.rank; ++i) s.batch[i] = desc.outputs[0].shape[i];
  QuantizedOutput& o = s.output;
  if (in.y_scale >= 0) {
    o.kind = QuantizedResult::kByte;
    set_byte_range(desc.outputs[0].dtype, byte_of(desc, in.y_zero), &o.low, &o.high, &o.zero);
  } else {
    o.kind = in.b_scale >= 0 ? QuantizedResult::kFloat : QuantizedResult::kInt;
  }
  if (in.b_scale >= 0) {
    const double scale = static_cast<double>(float_of(desc, in.a_scale)) * static_cast<double>(float_of(desc, in.b_scale));
    p.scale = static_cast<float>(in.y_scale >= 0 ? scale / static_cast<double>(float_of(desc, in.y_scale)) : scale);
  }
  plan->flops = 2.0 * static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(p.k);
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const OpDesc& desc = *args.desc;
  Launcher& cl = launcher(args);
  Params p = s.params;
  const std::int64_t products = desc.outputs[0].shape.elements() / std::max<std::int64_t>(p.m * p.n, 1);
  for (std::int64_t product = 0; product < products; ++product) {
    p.a_at = p.b_at = 0;
    p.y_at = product * p.m * p.n;
    std::int64_t rest = product;
    for (std::int32_t i = s.rank - 1; i >= 0; rest /= s.batch[i--]) {
      p.a_at += rest % s.batch[i] * s.a_stride[i];
      p.b_at += rest % s.batch[i] * s.b_stride[i];
    }
    cl.run(kMultiply, {ceil_div(p.m, kRows), ceil_div(p.n, cl.tile_columns())}, args.inputs[0],
           args.inputs[static_cast<std::size_t>(inputs_of(desc).b)], args.outputs[0], p, s.output);
  }
  if (!desc.node->epilogue.empty()) run_epilogue(cl, args.outputs[0], desc.outputs[0].shape.elements(), desc.node->epilogue);
}

constexpr Kernel row(const char* name, const char* op, const char* domain) {
  return {.name = name, .op = op, .domain = domain, .rank = 5, .supports = supports, .plan = plan, .run = run};
}

constexpr Kernel kKernels[] = {
    row("qlinear_matmul_computed", "QLinearMatMul", ""),
    row("matmul_integer_computed", "MatMulInteger", ""),
    row("matmul_integer_to_float_computed", "MatMulIntegerToFloat", "com.microsoft"),
};

}  // namespace

extern const KernelFamily quantized_computed_opencl_kernels;
const KernelFamily quantized_computed_opencl_kernels = {kKernels};

}  // namespace evn
