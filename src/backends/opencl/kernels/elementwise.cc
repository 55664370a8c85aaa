// Activations and other functions of one input, and float32 arithmetic of two or more broadcast ones.
#include <limits>

#include "backends/opencl/kernels/broadcast.h"
#include "ops/clip.h"
#include "ops/infra/numeric.h"
#include "ops/unary.h"

namespace evn {
namespace {

constexpr OpenClFunction kUnary{"elementwise", "unary"};
constexpr OpenClFunction kSeldomUnary{"functions", "seldom_unary"};
constexpr OpenClFunction kClipBetween{"elementwise", "clip_between"};
constexpr OpenClFunction kBinary{"elementwise", "binary"};
constexpr OpenClFunction kPower{"elementwise", "binary_power"};

// Functions of elementwise.cl that are no epilogue step; they go on from its numbers.
enum : int {
  kSqrtFunction = 100,
  kExpFunction,
  kAbsFunction,
  kNegFunction,
  kFloorFunction,
  kCeilFunction,
  kReciprocalFunction,
  kLogFunction,
  kErfFunction,
  kGeluFunction,
  kGeluTanhFunction,
  kSoftplusFunction,
  kSoftsignFunction,
  kEluFunction,
  kSeluFunction,
  kRoundFunction,
  kSignFunction,
  kSinFunction,
  kCosFunction,
  kMishFunction,
  kTanFunction,
};

// And of functions.cl, which counts from here.
enum : int {
  kSeldom = 200,
  kAsinFunction = kSeldom,
  kAcosFunction,
  kAtanFunction,
  kSinhFunction,
  kCoshFunction,
  kAsinhFunction,
  kAcoshFunction,
  kAtanhFunction,
  kCeluFunction,
  kSwishFunction,
  kThresholdedReluFunction,
  kShrinkFunction,
};

constexpr int number(EpilogueOpKind kind) { return static_cast<int>(kind); }

// ---- one input ----

struct UnaryState {
  EpilogueOp step;
  std::int64_t elements;
};

Refusal supports_unary(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan_step(const OpDesc& desc, KernelPlan* plan, EpilogueOp step) {
  plan->state<UnaryState>() = {step, desc.inputs[0].shape.elements()};
  plan->in_place = 1;
  plan->flops = static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

template <int kKind>
void plan_function(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {static_cast<EpilogueOpKind>(kKind), 0, 0});
}

void plan_leaky_relu(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {EpilogueOpKind::kLeakyRelu, attr_float(*desc.node, LeakyReluAttr::kAlpha), 0});
}

void plan_hard_sigmoid(const OpDesc& desc, KernelPlan* plan) {
  const Node& node = *desc.node;
  plan_step(desc, plan,
            {EpilogueOpKind::kHardSigmoid, attr_float(node, HardSigmoidAttr::kAlpha), attr_float(node, HardSigmoidAttr::kBeta)});
}

void plan_hard_swish(const OpDesc& desc, KernelPlan* plan) { plan_step(desc, plan, {EpilogueOpKind::kHardSwish, 1.0f / 6, 0.5f}); }

// The node's first attribute is a parameter, or the first two are.
template <int kFunction>
void plan_one_parameter(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {static_cast<EpilogueOpKind>(kFunction), attr_float(*desc.node, 0), 0});
}

template <int kFunction>
void plan_two_parameters(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan, {static_cast<EpilogueOpKind>(kFunction), attr_float(*desc.node, 0), attr_float(*desc.node, 1)});
}

void plan_gelu(const OpDesc& desc, KernelPlan* plan) {
  plan_step(desc, plan,
            {static_cast<EpilogueOpKind>(attr_string(*desc.node, 0) == "tanh" ? kGeluTanhFunction : kGeluFunction), 0, 0});
}

// Bounds that are computed stay on the device.
bool reads_bounds(const OpDesc& desc) {
  for (int i = 1; i < static_cast<int>(desc.inputs.size()); ++i) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return true;
  }
  return false;
}

void plan_clip(const OpDesc& desc, KernelPlan* plan) {
  EpilogueOp step{EpilogueOpKind::kClip, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  if (!clip_bounds_are_inputs(*desc.node)) {
    step.a = attr_float(*desc.node, ClipAttr::kMin);
    step.b = attr_float(*desc.node, ClipAttr::kMax);
  } else if (!reads_bounds(desc)) {
    if (desc.has_input(1)) step.a = *desc.constant(1)->as<float>();
    if (desc.has_input(2)) step.b = *desc.constant(2)->as<float>();
  }
  plan_step(desc, plan, step);
}

void run_function(const KernelArgs& args, const UnaryState& state, const Buffer& x) {
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, state.elements);
  const bool seldom = number(state.step.kind) >= kSeldom;
  const EpilogueOp step{seldom ? static_cast<EpilogueOpKind>(number(state.step.kind) - kSeldom) : state.step.kind, state.step.a,
                        state.step.b};
  cl.run(seldom ? kSeldomUnary : kUnary, {ceil_div(state.elements, chunk)}, x, args.outputs[0], state.elements, chunk, step,
         args.desc->node->epilogue);
}

void run_unary(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  run_function(args, args.plan->state<UnaryState>(), args.inputs[0]);
}

void run_clip(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  if (!reads_bounds(*args.desc)) return run_unary(args, begin, end, cancel);
  const std::int64_t n = args.plan->state<UnaryState>().elements;
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, n);
  const std::int32_t has_low = args.desc->has_input(1);
  const std::int32_t has_high = args.desc->has_input(2);
  cl.run(kClipBetween, {ceil_div(n, chunk)}, args.inputs[0], args.inputs[has_low != 0 ? 1 : 0], args.inputs[has_high != 0 ? 2 : 0],
         args.outputs[0], n, chunk, has_low, has_high, args.desc->node->epilogue);
}

// ---- two inputs ----

// The struct that elementwise.cl takes, laid out as there.
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

// Numbers as elementwise.cl has them.
enum : std::int32_t { kAdd, kSub, kMul, kDiv, kMin, kMax, kPRelu, kFirst, kFmod };

Binary merge_axes(const Shape& a, const Shape& b, const Shape& output, std::int32_t op) {
  Binary p{};
  p.op = op;
  merge_pair(a, b, output, &p);
  return p;
}

Refusal supports_binary(const OpDesc& desc) { return refuse_unless_float(desc); }

Refusal supports_mod(const OpDesc& desc) {
  if (attr_int(*desc.node, 0) == 0) return "of float32 only with fmod";
  return refuse_unless_float(desc);
}

// The division of a mean is one more fused step.
Refusal supports_mean(const OpDesc& desc) {
  if (desc.node->epilogue.count == kMaxEpilogueOps) return "too many fused steps";
  return refuse_unless_float(desc);
}

template <std::int32_t kOp>
void plan_binary(const OpDesc& desc, KernelPlan* plan) {
  plan->state<Binary>() = merge_axes(desc.inputs[0].shape, desc.inputs[1].shape, desc.outputs[0].shape, kOp);
  for (int i = 0; i < 2; ++i) {
    if (desc.inputs[i].shape == desc.outputs[0].shape) plan->in_place |= 1u << i;
  }
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

void enqueue_binary(Launcher& cl, const OpenClFunction& function, Binary p, const Buffer& a, const Buffer& b, const Buffer& y,
                    const Epilogue& epilogue) {
  p.chunk = chunk_elements(cl, p.inner * p.rows);
  p.row_chunk = p.inner >= p.chunk ? 1 : ceil_div(p.chunk, p.inner > 0 ? p.inner : 1);
  cl.run(function, {ceil_div(p.inner, p.chunk), ceil_div(p.rows, p.row_chunk)}, a, b, y, p, epilogue);
}

void run_binary(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  enqueue_binary(launcher(args), kBinary, args.plan->state<Binary>(), args.inputs[0], args.inputs[1], args.outputs[0],
                 args.desc->node->epilogue);
}

void run_fmod(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  enqueue_binary(launcher(args), kPower, args.plan->state<Binary>(), args.inputs[0], args.inputs[1], args.outputs[0],
                 args.desc->node->epilogue);
}

// ---- Pow by whole numbers: they become floats first ----

// True if float32 has all of the numbers: rounding would make odd exponents even, and change the sign of a power.
bool fit_float(const Weight& numbers) {
  bool fits = true;
  dispatch<std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>(numbers.desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr T kMost = 1 << 24;
    const std::span<const T> all(numbers.as<T>(), static_cast<std::size_t>(numbers.desc.shape.elements()));
    for (const T n : all) fits = fits && n <= kMost && (std::is_unsigned_v<T> || n >= T{} - kMost);
  });
  return fits;
}

Refusal supports_power(const OpDesc& desc) {
  if (!is_float(desc.inputs[0])) return "only float32";
  const DType exponent = desc.inputs[1].dtype;
  if (!can_cast_to_float(exponent)) return "not by exponents of this type";
  constexpr std::uint32_t kWide =
      dtype_bit(DType::kInt32) | dtype_bit(DType::kUint32) | dtype_bit(DType::kInt64) | dtype_bit(DType::kUint64);
  if ((dtype_bit(exponent) & kWide) == 0) return nullptr;
  const Weight* constant = desc.constant(1);
  return constant != nullptr && fit_float(*constant) ? nullptr : "exponents of 32 and 64 bits must be constant, and at most 2^24";
}

void plan_power(const OpDesc& desc, KernelPlan* plan) {
  plan_binary<kFirst>(desc, plan);
  if (is_float(desc.inputs[1])) return;
  plan->in_place &= 1;
  plan->scratch_bytes = TensorDesc{DType::kFloat32, desc.inputs[1].shape}.size_bytes();
}

void run_power(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  const TensorDesc& exponent = args.desc->inputs[1];
  if (!is_float(exponent)) run_cast_to_float(cl, args.inputs[1], exponent.dtype, exponent.shape.elements(), args.scratch);
  enqueue_binary(cl, kPower, args.plan->state<Binary>(), args.inputs[0], is_float(exponent) ? args.inputs[1] : args.scratch,
                 args.outputs[0], args.desc->node->epilogue);
}

// ---- com.microsoft's activations, of the sum with a bias ----

Refusal supports_biased(const OpDesc& desc) { return refuse_unless_float(desc); }

void run_biased(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OpDesc& desc = *args.desc;
  const UnaryState& state = args.plan->state<UnaryState>();
  if (desc.has_input(1)) {
    run_arithmetic(launcher(args), Arithmetic::kAdd, desc.inputs[0].shape, args.inputs[0], desc.inputs[1].shape, args.inputs[1],
                   args.outputs[0], Epilogue{});
  }
  run_function(args, state, desc.has_input(1) ? args.outputs[0] : args.inputs[0]);
}

// ---- any number of inputs: the output takes in one after the other ----

void plan_many(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = desc.inputs[0].shape == desc.outputs[0].shape ? 1 : 0;
  plan->flops = static_cast<double>(desc.inputs.size()) * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
}

Epilogue mean_epilogue(const Epilogue& after, std::size_t count) {
  Epilogue e;
  e.push({EpilogueOpKind::kScale, 1.0f / static_cast<float>(count), 0});
  for (std::int32_t i = 0; i < after.count; ++i) e.push(after.ops[i]);
  return e;
}

template <std::int32_t kOp, bool kMean = false>
void run_many(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OpDesc& desc = *args.desc;
  const Shape& output = desc.outputs[0].shape;
  const std::size_t count = desc.inputs.size();
  const Epilogue& epilogue = desc.node->epilogue;
  const Epilogue last = kMean ? mean_epilogue(epilogue, count) : epilogue;
  Launcher& cl = launcher(args);
  if (count == 1) {
    const Binary p = merge_axes(desc.inputs[0].shape, desc.inputs[0].shape, output, kFirst);
    return enqueue_binary(cl, kBinary, p, args.inputs[0], args.inputs[0], args.outputs[0], epilogue);
  }
  for (std::size_t i = 1; i < count; ++i) {
    const Binary p = merge_axes(i == 1 ? desc.inputs[0].shape : output, desc.inputs[i].shape, output, kOp);
    enqueue_binary(cl, kBinary, p, i == 1 ? args.inputs[0] : args.outputs[0], args.inputs[i], args.outputs[0],
                   i + 1 == count ? last : Epilogue{});
  }
}

using Plan = void (*)(const OpDesc&, KernelPlan*);

constexpr Kernel biased(const char* name, const char* op, Plan plan) {
  return {
      .name = name, .op = op, .domain = "com.microsoft", .rank = 10, .supports = supports_biased, .plan = plan, .run = run_biased};
}
constexpr Kernel unary(const char* name, const char* op, Plan plan) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_unary, .plan = plan, .run = run_unary};
}
constexpr Kernel binary(const char* name, const char* op, Plan plan) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_binary, .plan = plan, .run = run_binary};
}
template <std::int32_t kOp>
constexpr Kernel many(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_binary, .plan = plan_many, .run = run_many<kOp>};
}
constexpr Kernel kKernels[] = {
    unary("relu", "Relu", plan_function<number(EpilogueOpKind::kRelu)>),
    unary("sigmoid", "Sigmoid", plan_function<number(EpilogueOpKind::kSigmoid)>),
    unary("tanh", "Tanh", plan_function<number(EpilogueOpKind::kTanh)>),
    unary("leaky_relu", "LeakyRelu", plan_leaky_relu),
    unary("hard_sigmoid", "HardSigmoid", plan_hard_sigmoid),
    unary("hard_swish", "HardSwish", plan_hard_swish),
    {.name = "clip", .op = "Clip", .rank = 10, .supports = supports_unary, .plan = plan_clip, .run = run_clip},
    unary("sqrt", "Sqrt", plan_function<kSqrtFunction>),
    unary("exp", "Exp", plan_function<kExpFunction>),
    unary("abs", "Abs", plan_function<kAbsFunction>),
    unary("neg", "Neg", plan_function<kNegFunction>),
    unary("floor", "Floor", plan_function<kFloorFunction>),
    unary("ceil", "Ceil", plan_function<kCeilFunction>),
    unary("reciprocal", "Reciprocal", plan_function<kReciprocalFunction>),
    unary("log", "Log", plan_function<kLogFunction>),
    unary("erf", "Erf", plan_function<kErfFunction>),
    unary("gelu", "Gelu", plan_gelu),
    biased("fast_gelu", "FastGelu", plan_function<kGeluTanhFunction>),
    biased("bias_gelu", "BiasGelu", plan_function<kGeluFunction>),
    biased("gelu_contrib", "Gelu", plan_function<kGeluFunction>),
    biased("quick_gelu", "QuickGelu", plan_one_parameter<kSwishFunction>),
    unary("softplus", "Softplus", plan_function<kSoftplusFunction>),
    unary("softsign", "Softsign", plan_function<kSoftsignFunction>),
    unary("elu", "Elu", plan_one_parameter<kEluFunction>),
    unary("celu", "Celu", plan_one_parameter<kCeluFunction>),
    unary("swish", "Swish", plan_one_parameter<kSwishFunction>),
    unary("thresholded_relu", "ThresholdedRelu", plan_one_parameter<kThresholdedReluFunction>),
    unary("selu", "Selu", plan_two_parameters<kSeluFunction>),
    unary("shrink", "Shrink", plan_two_parameters<kShrinkFunction>),
    unary("round", "Round", plan_function<kRoundFunction>),
    unary("sign", "Sign", plan_function<kSignFunction>),
    unary("sin", "Sin", plan_function<kSinFunction>),
    unary("cos", "Cos", plan_function<kCosFunction>),
    unary("tan", "Tan", plan_function<kTanFunction>),
    unary("asin", "Asin", plan_function<kAsinFunction>),
    unary("acos", "Acos", plan_function<kAcosFunction>),
    unary("atan", "Atan", plan_function<kAtanFunction>),
    unary("sinh", "Sinh", plan_function<kSinhFunction>),
    unary("cosh", "Cosh", plan_function<kCoshFunction>),
    unary("asinh", "Asinh", plan_function<kAsinhFunction>),
    unary("acosh", "Acosh", plan_function<kAcoshFunction>),
    unary("atanh", "Atanh", plan_function<kAtanhFunction>),
    unary("mish", "Mish", plan_function<kMishFunction>),
    binary("add", "Add", plan_binary<kAdd>),
    binary("sub", "Sub", plan_binary<kSub>),
    binary("mul", "Mul", plan_binary<kMul>),
    binary("div", "Div", plan_binary<kDiv>),
    {.name = "fmod", .op = "Mod", .rank = 10, .supports = supports_mod, .plan = plan_binary<kFmod>, .run = run_fmod},
    binary("prelu", "PRelu", plan_binary<kPRelu>),
    {.name = "pow", .op = "Pow", .rank = 10, .supports = supports_power, .plan = plan_power, .run = run_power},
    many<kAdd>("sum", "Sum"),
    {.name = "mean", .op = "Mean", .rank = 10, .supports = supports_mean, .plan = plan_many, .run = run_many<kAdd, true>},
    many<kMin>("min", "Min"),
    many<kMax>("max", "Max"),
};

}  // namespace

void run_epilogue(Launcher& cl, const Buffer& y, std::int64_t elements, const Epilogue& epilogue) {
  if (epilogue.empty()) return;
  const std::int64_t chunk = chunk_elements(cl, elements);
  cl.run(kUnary, {ceil_div(elements, chunk)}, y, y, elements, chunk, EpilogueOp{EpilogueOpKind::kScale, 1, 0}, epilogue);
}

void run_arithmetic(Launcher& cl, Arithmetic op, const Shape& a_shape, const Buffer& a, const Shape& b_shape, const Buffer& b,
                    const Buffer& y, const Epilogue& epilogue) {
  const Shape output = broadcast_partial(a_shape, b_shape);
  enqueue_binary(cl, kBinary, merge_axes(a_shape, b_shape, output, static_cast<std::int32_t>(op)), a, b, y, epilogue);
}

extern const KernelFamily elementwise_opencl_kernels;
const KernelFamily elementwise_opencl_kernels = {kKernels};

}  // namespace evn
