// BatchNormalization in training, its derivative and that of LayerNormalization, float32.
#include "ops/training/norm_gradient.h"

#include <algorithm>

#include "backends/opencl/training/support.h"
#include "ops/batch_norm.h"
#include "ops/infra/check.h"

namespace evn {
namespace {

constexpr OpenClFunction kTraining{"norm_gradient", "batch_norm_training"};
constexpr OpenClFunction kGradient{"norm_gradient", "batch_norm_gradient"};
constexpr OpenClFunction kLayerRows{"norm_gradient", "layer_norm_rows"};
constexpr OpenClFunction kLayerColumns{"norm_gradient", "layer_norm_columns"};
constexpr OpenClFunction kLayerFinish{"norm_gradient", "layer_norm_finish"};

using Input = NormGradientInput;

// Output i, or another buffer where it is not wanted, and so not written.
const Buffer& output_or(const KernelArgs& args, std::size_t i, const Buffer& other) {
  return is_wanted(*args.desc, i) ? args.outputs[i] : other;
}

// ---- BatchNormalization ----

// The struct that norm_gradient.cl takes, laid out as there.
struct Batch {
  std::int64_t samples, channels, inner;
  float epsilon, momentum;
  std::int32_t trains, wanted, has_moments, padding;
};

Batch batch_of(const OpDesc& desc, int epsilon) {
  const Shape& x = desc.inputs[0].shape;
  Batch p{};
  p.samples = x[0];
  p.channels = x[1];
  p.inner = x.elements(2, x.rank());
  p.epsilon = attr_float(*desc.node, epsilon);
  for (std::size_t i = 0; i < desc.outputs.size(); ++i) p.wanted |= is_wanted(desc, i) ? 1 << i : 0;
  return p;
}

Refusal supports_training(const OpDesc& desc) {
  if (!batch_norm_trains(*desc.node)) return "only in training mode";
  if (batch_norm_by_element(*desc.node)) return "only with parameters per channel";
  for (const TensorDesc& input : desc.inputs) {
    if (!is_float(input)) return "only float32";
  }
  return desc.inputs[0].shape.rank() < 2 ? "only with a channel axis" : nullptr;
}

void plan_training(const OpDesc& desc, KernelPlan* plan) {
  Batch& p = plan->state<Batch>();
  p = batch_of(desc, BatchNormAttr::kEpsilon);
  p.momentum = attr_float(*desc.node, BatchNormAttr::kMomentum);
  plan->in_place = 1;
  plan->flops = 6.0 * static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

// Means and variances are moved on where they lie.
int training_written_over(const OpDesc&, int output) {
  return output == 1 ? BatchNormInput::kMean : output == 2 ? BatchNormInput::kVariance : -1;
}

void run_training(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const Batch& p = args.plan->state<Batch>();
  Launcher& cl = launcher(args);
  const Buffer& x = args.inputs[0];
  cl.run(kTraining, {checked_mul(p.channels, cl.group_items())}, x, args.inputs[BatchNormInput::kScale],
         args.inputs[BatchNormInput::kBias], args.inputs[BatchNormInput::kMean], args.inputs[BatchNormInput::kVariance],
         output_or(args, 0, x), output_or(args, 1, x), output_or(args, 2, x), output_or(args, 3, x), output_or(args, 4, x), p,
         args.desc->node->epilogue);
}

Refusal supports_gradient(const OpDesc& desc) { return refuse_unless_plain(desc); }

void plan_gradient(const OpDesc& desc, KernelPlan* plan) {
  Batch& p = plan->state<Batch>();
  p = batch_of(desc, BatchNormGradientAttr::kEpsilon);
  p.trains = attr_int(*desc.node, BatchNormGradientAttr::kTrains) != 0;
  p.has_moments = desc.has_input(Input::kMean) && desc.has_input(Input::kVariance);
  plan->in_place = 1u << Input::kX | 1u << Input::kDy;
  plan->flops = 10.0 * static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

void run_gradient(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const Batch& p = args.plan->state<Batch>();
  Launcher& cl = launcher(args);
  const Buffer& x = args.inputs[Input::kX];
  const Buffer& mean = p.has_moments != 0 ? args.inputs[Input::kMean] : x;
  const Buffer& variance = p.has_moments != 0 ? args.inputs[Input::kVariance] : x;
  cl.run(kGradient, {checked_mul(p.channels, cl.group_items())}, x, args.inputs[Input::kScale], args.inputs[Input::kDy], mean,
         variance, output_or(args, 0, x), output_or(args, 1, x), output_or(args, 2, x), p);
}

// ---- LayerNormalization ----

constexpr std::int64_t kRowsOfPart = 64, kMostParts = 32;  // whose sums are made by themselves

struct LayerState {
  std::int64_t rows, length, parts, chunk;
  float epsilon;
};

void plan_layer_norm(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[Input::kX].shape;
  const int axis = normalize_axis(attr_int(*desc.node, LayerNormGradientAttr::kAxis), x.rank());
  LayerState& s = plan->state<LayerState>();
  s.rows = x.elements(0, axis);
  s.length = x.elements(axis, x.rank());
  s.chunk = std::max(kRowsOfPart, ceil_div(s.rows, kMostParts));
  s.parts = ceil_div(s.rows, s.chunk);
  s.epsilon = attr_float(*desc.node, LayerNormGradientAttr::kEpsilon);
  const std::int64_t floats =
      checked_add(checked_mul<std::int64_t>(2, s.rows), checked_mul(checked_mul<std::int64_t>(2, s.parts), s.length));
  plan->scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(floats, sizeof(float)));
  plan->flops = 16.0 * static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_layer_norm(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const LayerState& s = args.plan->state<LayerState>();
  Launcher& cl = launcher(args);
  const Buffer &x = args.inputs[Input::kX], &dy = args.inputs[Input::kDy];
  const std::size_t moments_bytes = static_cast<std::size_t>(2 * s.rows) * sizeof(float);
  const Buffer moments = part_of(args.scratch, 0, moments_bytes);
  const Buffer sums = part_of(args.scratch, moments_bytes, args.scratch.size - moments_bytes);
  const std::int32_t has_dx = is_wanted(*args.desc, 0), has_dscale = is_wanted(*args.desc, 1), has_dbias = is_wanted(*args.desc, 2);
  const std::int64_t rows = cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, s.rows * s.length) / s.length) : 1;
  cl.run(kLayerRows, {checked_mul(ceil_div(s.rows, rows), cl.group_items())}, x, args.inputs[Input::kScale], dy,
         output_or(args, 0, moments), moments, s.rows, s.length, rows, s.epsilon, has_dx);
  if (has_dscale + has_dbias == 0) return;
  const std::int64_t columns = ceil_div(s.length, static_cast<std::int64_t>(cl.lanes()));
  cl.run(kLayerColumns, {columns, s.parts}, x, dy, moments, sums, s.rows, s.length, s.chunk);
  cl.run(kLayerFinish, {columns}, sums, output_or(args, 1, moments), output_or(args, 2, moments), s.length, s.parts, has_dscale,
         has_dbias);
}

constexpr Kernel kKernels[] = {
    {.name = "batch_norm_training",
     .op = "BatchNormalization",
     .rank = 11,
     .supports = supports_training,
     .plan = plan_training,
     .run = run_training,
     .written_over = training_written_over},
    {.name = "batch_norm_gradient",
     .op = kBatchNormGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_gradient,
     .plan = plan_gradient,
     .run = run_gradient},
    {.name = "layer_norm_gradient",
     .op = kLayerNormGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports_gradient,
     .plan = plan_layer_norm,
     .run = run_layer_norm},
};

}  // namespace

extern const KernelFamily norm_gradient_opencl_kernels;
const KernelFamily norm_gradient_opencl_kernels = {kKernels};

}  // namespace evn
