// SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss and their derivatives, float32.
#include <algorithm>

#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kOfPlaces{"loss", "loss_of_places"};
constexpr OpenClFunction kFinishLoss{"loss", "finish_loss"};
constexpr OpenClFunction kSumWeights{"loss", "loss_weights"};
constexpr OpenClFunction kOfPlacesGradient{"loss", "loss_gradient"};

enum : int { kReduction, kIgnore };
enum : int { kX, kTarget };
constexpr std::int64_t kMostPieces = 256, kLeastPlaces = 16;  // of a piece

// The struct that loss.cl takes, laid out as there.
struct Loss {
  std::int64_t places, classes, inner, chunk, ignored;
  std::int32_t wide, softmax, has_weights, mean, single, log_prob;
};

Refusal supports(const OpDesc& desc) {
  if (!is_float(desc.inputs[kX])) return "only float32";
  return desc.node->epilogue.empty() ? nullptr : "no fused steps";
}

// `weights`: the number of their input.
Loss loss_of(const OpDesc& desc, int weights) {
  const Shape& x = desc.inputs[kX].shape;
  const std::string& reduction = attr_string(*desc.node, kReduction);
  Loss p{};
  p.places = desc.inputs[kTarget].shape.elements();
  p.classes = x[1];
  p.inner = x.elements(2, x.rank());
  p.chunk = std::max(kLeastPlaces, ceil_div(p.places, kMostPieces));
  p.ignored = attr_int(*desc.node, kIgnore);
  p.wide = desc.inputs[kTarget].dtype == DType::kInt64;
  p.has_weights = desc.has_input(weights);
  p.mean = reduction == "mean";
  p.single = reduction != "none";
  return p;
}

std::int64_t pieces_of(const Loss& p) { return ceil_div(p.places, p.chunk); }

// ---- the losses ----

constexpr int kLossWeightsInput = 2;

template <bool kSoftmax>
void plan_loss(const OpDesc& desc, KernelPlan* plan) {
  Loss& p = plan->state<Loss>();
  p = loss_of(desc, kLossWeightsInput);
  p.softmax = kSoftmax;
  p.log_prob = is_wanted(desc, 1);
  plan->scratch_bytes = static_cast<std::size_t>(2 * pieces_of(p)) * sizeof(float);
  plan->flops = 20.0 * static_cast<double>(desc.inputs[kX].shape.elements());
  count_bytes(desc, plan);
}

void run_loss(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const Loss& p = args.plan->state<Loss>();
  Launcher& cl = launcher(args);
  const Buffer& x = args.inputs[kX];
  const Buffer& y = is_wanted(*args.desc, 0) ? args.outputs[0] : args.scratch;
  cl.run(kOfPlaces, {pieces_of(p)}, x, args.inputs[kTarget], p.has_weights != 0 ? args.inputs[kLossWeightsInput] : x, args.scratch,
         y, p.log_prob != 0 ? args.outputs[1] : args.scratch, p);
  if (p.single != 0 && is_wanted(*args.desc, 0)) cl.run(kFinishLoss, {1}, args.scratch, y, pieces_of(p), p.mean);
}

Refusal supports_loss(const OpDesc& desc) {
  if (const Refusal refusal = supports(desc)) return refusal;
  return is_wanted(desc, 0) ? nullptr : "without its first output";
}

// ---- their derivatives ----

enum : int { kDy = 2, kWeights };

template <bool kSoftmax>
void plan_gradient(const OpDesc& desc, KernelPlan* plan) {
  Loss& p = plan->state<Loss>();
  p = loss_of(desc, kWeights);
  p.softmax = kSoftmax;
  plan->scratch_bytes = static_cast<std::size_t>(std::max<std::int64_t>(pieces_of(p), 1)) * sizeof(float);
  plan->flops = 20.0 * static_cast<double>(desc.inputs[kX].shape.elements());
  count_bytes(desc, plan);
}

void run_gradient(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const Loss& p = args.plan->state<Loss>();
  Launcher& cl = launcher(args);
  const Buffer &targets = args.inputs[kTarget], &dy = args.inputs[kDy];
  const Buffer& x = p.softmax != 0 ? args.inputs[kX] : dy;  // else only its shape is known
  const Buffer& weights = p.has_weights != 0 ? args.inputs[kWeights] : dy;
  const std::int64_t pieces = pieces_of(p);
  if (p.mean != 0) cl.run(kSumWeights, {pieces}, targets, weights, args.scratch, p);
  cl.run(kOfPlacesGradient, {pieces}, x, targets, dy, weights, args.scratch, args.outputs[0], pieces, p);
}

constexpr Kernel loss_row(const char* name, const char* op, void (*plan)(const OpDesc&, KernelPlan*)) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_loss, .plan = plan, .run = run_loss};
}
constexpr Kernel gradient_row(const char* name, const char* op, void (*plan)(const OpDesc&, KernelPlan*)) {
  return {.name = name, .op = op, .domain = kInternalDomain, .rank = 10, .supports = supports, .plan = plan, .run = run_gradient};
}

constexpr Kernel kKernels[] = {
    loss_row("negative_log_likelihood", "NegativeLogLikelihoodLoss", plan_loss<false>),
    loss_row("softmax_cross_entropy", "SoftmaxCrossEntropyLoss", plan_loss<true>),
    gradient_row("loss_gradient", kLossGradient, plan_gradient<false>),
    gradient_row("cross_entropy_gradient", kCrossEntropyGradient, plan_gradient<true>),
};

}  // namespace

extern const KernelFamily loss_opencl_kernels;
const KernelFamily loss_opencl_kernels = {kKernels};

}  // namespace evn
