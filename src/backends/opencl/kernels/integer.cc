// Arithmetic and bits of integers of any width, with broadcasting.
#include "backends/opencl/kernels/integer.h"

namespace evn {
namespace {

constexpr OpenClFunction kWhole{"integer", "whole"};

// Numbers as integer.cl has them.
enum : std::int32_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFmod,
  kMod,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRight,
  kPRelu,
  kFirst,
  kAbs,
  kNeg,
  kSign,
  kRelu,
  kNot,
};

Whole merge_axes(const Shape& a, const Shape& b, const Shape& output, std::int32_t op, DType dtype) {
  Whole p{};
  p.op = op;
  p.type = whole_type(dtype);
  merge_pair(a, b, output, &p);
  return p;
}

void enqueue(Launcher& cl, Whole p, const Buffer& a, const Buffer& b, const Buffer& y) {
  p.chunk = chunk_elements(cl, p.inner * p.rows);
  p.row_chunk = p.inner >= p.chunk ? 1 : ceil_div(p.chunk, p.inner > 0 ? p.inner : 1);
  cl.run(kWhole, {ceil_div(p.inner, p.chunk), ceil_div(p.rows, p.row_chunk)}, a, b, y, p);
}

// ---- one input, or two ----

Whole describe(const OpDesc& desc, std::int32_t op) {
  const std::size_t other = desc.inputs.size() > 1 ? 1 : 0;
  return merge_axes(desc.inputs[0].shape, desc.inputs[other].shape, desc.outputs[0].shape, op, desc.inputs[0].dtype);
}

void finish_plan(const OpDesc& desc, KernelPlan* plan) {
  for (std::size_t i = 0; i < desc.inputs.size() && i < 2; ++i) {
    if (desc.inputs[i].shape == desc.outputs[0].shape) plan->in_place |= 1u << i;
  }
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

template <std::int32_t kOp>
void plan_whole(const OpDesc& desc, KernelPlan* plan) {
  plan->state<Whole>() = describe(desc, kOp);
  finish_plan(desc, plan);
}

void plan_mod(const OpDesc& desc, KernelPlan* plan) {
  plan->state<Whole>() = describe(desc, attr_int(*desc.node, 0) != 0 ? kFmod : kMod);
  finish_plan(desc, plan);
}

void plan_shift(const OpDesc& desc, KernelPlan* plan) {
  plan->state<Whole>() = describe(desc, attr_string(*desc.node, 0) == "LEFT" ? kShiftLeft : kShiftRight);
  finish_plan(desc, plan);
}

void run_whole(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  enqueue(launcher(args), args.plan->state<Whole>(), args.inputs[0], args.inputs[args.inputs.size() > 1 ? 1 : 0], args.outputs[0]);
}

// ---- any number of inputs: the output takes in one after the other ----

void plan_many(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = desc.inputs[0].shape == desc.outputs[0].shape ? 1 : 0;
  plan->flops = static_cast<double>(desc.inputs.size()) * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

// y = first op second, where second may be the first and op then hands it on.
void fold(const KernelArgs& args, bool is_first, std::size_t with, std::int32_t op) {
  const OpDesc& desc = *args.desc;
  const Shape& output = desc.outputs[0].shape;
  const Shape& from = is_first ? desc.inputs[0].shape : output;
  const Whole p = merge_axes(from, desc.inputs[with].shape, output, op, desc.inputs[0].dtype);
  enqueue(launcher(args), p, is_first ? args.inputs[0] : args.outputs[0], args.inputs[with], args.outputs[0]);
}

template <std::int32_t kOp>
void run_many(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  if (args.inputs.size() == 1) return fold(args, true, 0, kFirst);
  for (std::size_t i = 1; i < args.inputs.size(); ++i) fold(args, i == 1, i, kOp);
}

// The bounds are scalars, whose shape may also be [1].
void run_clip(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const bool low = args.desc->has_input(1);
  const bool high = args.desc->has_input(2);
  if (low) fold(args, true, 1, kMax);
  if (high) fold(args, !low, 2, kMin);
  if (!low && !high) fold(args, true, 0, kFirst);
}

using Plan = void (*)(const OpDesc&, KernelPlan*);

constexpr Kernel row(const char* name, const char* op, Plan plan) {
  return {.name = name, .op = op, .rank = 10, .supports = refuse_unless_whole, .plan = plan, .run = run_whole};
}

constexpr Kernel kKernels[] = {
    row("add_integer", "Add", plan_whole<kAdd>),
    row("sub_integer", "Sub", plan_whole<kSub>),
    row("mul_integer", "Mul", plan_whole<kMul>),
    row("div_integer", "Div", plan_whole<kDiv>),
    row("mod_integer", "Mod", plan_mod),
    row("prelu_integer", "PRelu", plan_whole<kPRelu>),
    row("bitwise_and", "BitwiseAnd", plan_whole<kAnd>),
    row("bitwise_or", "BitwiseOr", plan_whole<kOr>),
    row("bitwise_xor", "BitwiseXor", plan_whole<kXor>),
    row("bitwise_not", "BitwiseNot", plan_whole<kNot>),
    row("bit_shift", "BitShift", plan_shift),
    row("abs_integer", "Abs", plan_whole<kAbs>),
    row("neg_integer", "Neg", plan_whole<kNeg>),
    row("sign_integer", "Sign", plan_whole<kSign>),
    row("relu_integer", "Relu", plan_whole<kRelu>),
    {.name = "min_integer", .op = "Min", .rank = 10, .supports = refuse_unless_whole, .plan = plan_many, .run = run_many<kMin>},
    {.name = "max_integer", .op = "Max", .rank = 10, .supports = refuse_unless_whole, .plan = plan_many, .run = run_many<kMax>},
    {.name = "clip_integer", .op = "Clip", .rank = 10, .supports = refuse_unless_whole, .plan = plan_many, .run = run_clip},
};

}  // namespace

extern const KernelFamily integer_opencl_kernels;
const KernelFamily integer_opencl_kernels = {kKernels};

}  // namespace evn
