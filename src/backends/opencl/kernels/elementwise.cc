// Activations and other functions of one input, and Add, Sub, Mul and Div with broadcasting.
#include <limits>

#include "backends/opencl/kernels/support.h"
#include "ops/clip.h"
#include "ops/unary.h"

namespace evn {
namespace {

constexpr OpenClFunction kUnary{"elementwise", "unary"};
constexpr OpenClFunction kBinary{"elementwise", "binary"};

// Functions of elementwise.cl that are no epilogue step; they go on from its numbers.
enum : int { kSqrtFunction = 100, kExpFunction, kAbsFunction, kNegFunction, kFloorFunction, kCeilFunction, kReciprocalFunction };

// ---- one input ----

struct UnaryState {
  Step step;
  std::int64_t elements;
};

Refusal supports_unary(const OpDesc& desc) { return refuse_unless_float(desc); }

Refusal supports_clip(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  for (int i = 1; i < static_cast<int>(desc.inputs.size()); ++i) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return "bounds must be constant";
  }
  return nullptr;
}

void plan_step(const OpDesc& desc, KernelPlan* plan, Step step) {
  plan->state<UnaryState>() = {step, desc.inputs[0].shape.elements()};
  plan->in_place = 1;
  plan->flops = static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

template <int kKind>
void plan_function(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {static_cast<StepKind>(kKind), 0, 0});
}

void plan_leaky_relu(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {StepKind::kLeakyRelu, attr_float(*desc.node, LeakyReluAttr::kAlpha), 0});
}

void plan_hard_sigmoid(const OpDesc& desc, KernelPlan* plan) {
  const Node& node = *desc.node;
  plan_step(desc, plan,
            {StepKind::kHardSigmoid, attr_float(node, HardSigmoidAttr::kAlpha), attr_float(node, HardSigmoidAttr::kBeta)});
}

void plan_hard_swish(const OpDesc& desc, KernelPlan* plan) { plan_step(desc, plan, {StepKind::kHardSwish, 1.0f / 6, 0.5f}); }

void plan_clip(const OpDesc& desc, KernelPlan* plan) {
  Step step{StepKind::kClip, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  if (!clip_bounds_are_inputs(*desc.node)) {
    step.a = attr_float(*desc.node, ClipAttr::kMin);
    step.b = attr_float(*desc.node, ClipAttr::kMax);
  } else {
    if (desc.has_input(1)) step.a = *desc.constant(1)->as<float>();
    if (desc.has_input(2)) step.b = *desc.constant(2)->as<float>();
  }
  plan_step(desc, plan, step);
}

void run_unary(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const UnaryState& state = args.plan->state<UnaryState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, state.elements);
  cl.run(kUnary, {ceil_div(state.elements, chunk)}, args.inputs[0], args.outputs[0], state.elements, chunk, state.step,
         args.desc->node->epilogue);
}

// ---- two inputs ----

// As in elementwise.cl.
struct Binary {
  std::int32_t op;
  std::int32_t rank;
  std::int64_t inner;
  std::int64_t rows;
  std::int64_t row_chunk;
  std::int64_t chunk;
  std::int32_t a_step;
  std::int32_t b_step;
  std::int64_t dim[kMaxRank];
  std::int64_t a_stride[kMaxRank];
  std::int64_t b_stride[kMaxRank];
};

// Strides of an input along the axes of the output, 0 where it is broadcast.
void broadcast_strides(const Shape& input, const Shape& output, std::int64_t* strides) {
  std::int64_t own[kMaxRank] = {};
  row_major_strides(input, own);
  const int shift = output.rank() - input.rank();
  for (int i = 0; i < output.rank(); ++i) strides[i] = i < shift || input[i - shift] == 1 ? 0 : own[i - shift];
}

// Merges neighbouring axes that both inputs walk through in one stride; the last that is left is `inner`.
Binary merge_axes(const OpDesc& desc) {
  const Shape& output = desc.outputs[0].shape;
  std::int64_t a[kMaxRank], b[kMaxRank];
  broadcast_strides(desc.inputs[0].shape, output, a);
  broadcast_strides(desc.inputs[1].shape, output, b);
  Binary p{};
  int last = -1;
  for (int i = 0; i < output.rank(); ++i) {
    if (output[i] == 1) continue;
    if (last >= 0 && p.a_stride[last] == a[i] * output[i] && p.b_stride[last] == b[i] * output[i]) {
      p.dim[last] *= output[i];
    } else {
      p.dim[++last] = output[i];
    }
    p.a_stride[last] = a[i];
    p.b_stride[last] = b[i];
  }
  p.inner = last < 0 ? 1 : p.dim[last];
  p.a_step = last >= 0 && p.a_stride[last] != 0;
  p.b_step = last >= 0 && p.b_stride[last] != 0;
  p.rank = last < 0 ? 0 : last;
  p.rows = 1;
  for (int i = 0; i < p.rank; ++i) p.rows *= p.dim[i];
  return p;
}

Refusal supports_binary(const OpDesc& desc) { return refuse_unless_float(desc); }

template <int kOp>
void plan_binary(const OpDesc& desc, KernelPlan* plan) {
  Binary p = merge_axes(desc);
  p.op = kOp;
  plan->state<Binary>() = p;
  for (int i = 0; i < 2; ++i) {
    if (desc.inputs[i].shape == desc.outputs[0].shape) plan->in_place |= 1u << i;
  }
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run_binary(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Binary p = args.plan->state<Binary>();
  Launcher& cl = launcher(args);
  p.chunk = chunk_elements(cl, p.inner * p.rows);
  p.row_chunk = p.inner >= p.chunk ? 1 : ceil_div(p.chunk, p.inner > 0 ? p.inner : 1);
  cl.run(kBinary, {ceil_div(p.inner, p.chunk), ceil_div(p.rows, p.row_chunk)}, args.inputs[0], args.inputs[1], args.outputs[0], p,
         args.desc->node->epilogue);
}

using Plan = void (*)(const OpDesc&, KernelPlan*);

constexpr Kernel unary(const char* name, const char* op, Plan plan, Refusal (*supports)(const OpDesc&) = supports_unary) {
  return {name, op, "", 10, supports, nullptr, nullptr, nullptr, plan, run_unary};
}
constexpr Kernel binary(const char* name, const char* op, Plan plan) {
  return {name, op, "", 10, supports_binary, nullptr, nullptr, nullptr, plan, run_binary};
}
constexpr int number(StepKind kind) { return static_cast<int>(kind); }

constexpr Kernel kKernels[] = {
    unary("relu", "Relu", plan_function<number(StepKind::kRelu)>),
    unary("sigmoid", "Sigmoid", plan_function<number(StepKind::kSigmoid)>),
    unary("tanh", "Tanh", plan_function<number(StepKind::kTanh)>),
    unary("leaky_relu", "LeakyRelu", plan_leaky_relu),
    unary("hard_sigmoid", "HardSigmoid", plan_hard_sigmoid),
    unary("hard_swish", "HardSwish", plan_hard_swish),
    unary("clip", "Clip", plan_clip, supports_clip),
    unary("sqrt", "Sqrt", plan_function<kSqrtFunction>),
    unary("exp", "Exp", plan_function<kExpFunction>),
    unary("abs", "Abs", plan_function<kAbsFunction>),
    unary("neg", "Neg", plan_function<kNegFunction>),
    unary("floor", "Floor", plan_function<kFloorFunction>),
    unary("ceil", "Ceil", plan_function<kCeilFunction>),
    unary("reciprocal", "Reciprocal", plan_function<kReciprocalFunction>),
    binary("add", "Add", plan_binary<0>),
    binary("sub", "Sub", plan_binary<1>),
    binary("mul", "Mul", plan_binary<2>),
    binary("div", "Div", plan_binary<3>),
};

}  // namespace

extern const KernelFamily elementwise_opencl_kernels;
const KernelFamily elementwise_opencl_kernels = {kKernels};

}  // namespace evn
