// Element-wise operators of one float32 input, in any layout. A tile is a run of elements.
#include "backends/cpu/elementwise/elementwise_loops.h"

#include <limits>

#include "backends/cpu/follow.h"
#include "backends/cpu/support.h"
#include "ops/clip.h"
#include "ops/unary.h"

namespace evn {
namespace {

using simd_elementwise::Unary;

struct UnaryState {
  Isa isa;
  std::int64_t count;
};

Refusal supports(const OpDesc& d) { return all_float32(d) ? nullptr : kNeedsFloat32; }

// Gelu in one of its forms.
template <bool Tanh>
Refusal gelu_supports(const OpDesc& d) {
  if ((attr_string(*d.node, 0) == "tanh") != Tanh) return Tanh ? "only approximate=tanh" : "only approximate=none";
  return supports(d);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<UnaryState>();
  s.isa = cpu_isa();
  s.count = d.outputs[0].shape.elements();
  p->tiles = ceil_div(s.count, kElementsPerTile);
  p->in_place = 1;
  p->flops = 8.0 * static_cast<double>(s.count);
  p->bytes = bytes_of(d);
}

struct Parameters {
  float a = 0;
  float b = 0;
};

template <Unary F>
Parameters parameters(const KernelArgs& args) {
  const Node& node = *args.desc->node;
  if constexpr (F == Unary::kClip) {
    Parameters p = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
    if (!clip_bounds_are_inputs(node)) return {attr_float(node, ClipAttr::kMin), attr_float(node, ClipAttr::kMax)};
    if (args.desc->has_input(1)) p.a = *args.in<float>(1);
    if (args.desc->has_input(2)) p.b = *args.in<float>(2);
    return p;
  } else if constexpr (F == Unary::kLeakyRelu) {
    return {attr_float(node, LeakyReluAttr::kAlpha), 0};
  } else if constexpr (F == Unary::kHardSigmoid) {
    return {attr_float(node, HardSigmoidAttr::kAlpha), attr_float(node, HardSigmoidAttr::kBeta)};
  } else if constexpr (F == Unary::kHardSwish) {
    return {1.0f / 6.0f, 0.5f};
  } else if constexpr (F == Unary::kSwish) {
    return {attr_float(node, SwishAttr::kAlpha), 0};
  } else if constexpr (F == Unary::kElu || F == Unary::kCelu || F == Unary::kThresholdedRelu) {
    return {attr_float(node, EluAttr::kAlpha), 0};
  } else if constexpr (F == Unary::kSelu) {
    return {attr_float(node, EluAttr::kAlpha), attr_float(node, EluAttr::kGamma)};
  } else {
    return {};
  }
}

template <Unary F>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<UnaryState>();
  const simd_elementwise::Loops& loops = simd_elementwise::loops(s.isa);
  const Parameters p = parameters<F>(args);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * kElementsPerTile;
    const std::int64_t n = s.count - first < kElementsPerTile ? s.count - first : kElementsPerTile;
    loops.unary(F, p.a, p.b, args.in<float>(0) + first, args.out<float>() + first, n, goes_past_caches(args),
                epilogue_of(*args.desc));
  }
}

template <Unary F>
constexpr Kernel row(const char* name, const char* op, Refusal (*check)(const OpDesc&) = supports, int rank = 10) {
  return {.name = name, .op = op, .rank = rank, .supports = check, .plan = plan, .run = run<F>, .layouts = follow_first};
}

constexpr Kernel kKernels[] = {
    row<Unary::kIdentity>("identity", "Identity"),
    row<Unary::kRelu>("relu", "Relu"),
    row<Unary::kClip>("clip", "Clip"),
    row<Unary::kLeakyRelu>("leaky_relu", "LeakyRelu"),
    row<Unary::kHardSigmoid>("hard_sigmoid", "HardSigmoid"),
    row<Unary::kHardSwish>("hard_swish", "HardSwish"),
    row<Unary::kSigmoid>("sigmoid", "Sigmoid"),
    row<Unary::kTanh>("tanh", "Tanh"),
    row<Unary::kSqrt>("sqrt", "Sqrt"),
    row<Unary::kExp>("exp", "Exp"),
    row<Unary::kErf>("erf", "Erf"),
    row<Unary::kAbs>("abs", "Abs"),
    row<Unary::kNeg>("neg", "Neg"),
    row<Unary::kReciprocal>("reciprocal", "Reciprocal"),
    row<Unary::kSoftplus>("softplus", "Softplus"),
    row<Unary::kFloor>("floor", "Floor"),
    row<Unary::kCeil>("ceil", "Ceil"),
    row<Unary::kLog>("log", "Log"),
    row<Unary::kSin>("sin", "Sin"),
    row<Unary::kCos>("cos", "Cos"),
    row<Unary::kGelu>("gelu", "Gelu", gelu_supports<false>),
    row<Unary::kGeluTanh>("gelu_tanh", "Gelu", gelu_supports<true>, 9),
    row<Unary::kSwish>("swish", "Swish"),
    row<Unary::kRound>("round", "Round"),
    row<Unary::kSign>("sign", "Sign"),
    row<Unary::kSoftsign>("softsign", "Softsign"),
    row<Unary::kThresholdedRelu>("thresholded_relu", "ThresholdedRelu"),
    row<Unary::kElu>("elu", "Elu"),
    row<Unary::kSelu>("selu", "Selu"),
    row<Unary::kCelu>("celu", "Celu"),
    row<Unary::kMish>("mish", "Mish"),
    row<Unary::kTan>("tan", "Tan"),
    row<Unary::kAsin>("asin", "Asin"),
    row<Unary::kAcos>("acos", "Acos"),
    row<Unary::kAtan>("atan", "Atan"),
    row<Unary::kSinh>("sinh", "Sinh"),
    row<Unary::kCosh>("cosh", "Cosh"),
    row<Unary::kAsinh>("asinh", "Asinh"),
    row<Unary::kAcosh>("acosh", "Acosh"),
    row<Unary::kAtanh>("atanh", "Atanh"),
};

}  // namespace

extern const KernelFamily elementwise_kernels;
const KernelFamily elementwise_kernels = {kKernels};

}  // namespace evn
