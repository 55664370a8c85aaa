// Resize to nearest neighbours by whole factors, of floats or bytes, and BatchNormalization that no convolution has taken in.
#include "backends/opencl/kernels/support.h"
#include "ops/batch_norm.h"
#include "ops/resize.h"

namespace evn {
namespace {

constexpr OpenClFunction kResizeNearest{"move", "resize_nearest"};
constexpr OpenClFunction kResizeBytes{"move", "resize_bytes"};
constexpr OpenClFunction kBatchNorm{"move", "batch_norm"};

// ---- Resize ----

struct ResizeState {
  std::int64_t planes;
  std::int32_t in_h, in_w, factor_h, factor_w;
};

// With these, output position q * factor + r of 0 <= r < factor reads input position q.
bool repeats_elements(const Node& node) {
  const std::string& mode = attr_string(node, ResizeAttr::kMode);
  const std::string& coordinates = attr_string(node, ResizeAttr::kCoordinateTransformationMode);
  const std::string& nearest = attr_string(node, ResizeAttr::kNearestMode);
  if (mode != "nearest") return false;
  return (coordinates == "asymmetric" && nearest == "floor") ||
         (coordinates == "half_pixel" && (nearest == "round_prefer_floor" || nearest == "round_prefer_ceil"));
}

Refusal supports_resize(const OpDesc& desc) {
  enum : int { kX, kRoi, kScales, kSizes };
  const bool bytes = desc.inputs[kX].dtype == DType::kInt8 || desc.inputs[kX].dtype == DType::kUint8;
  if (!is_float(desc.inputs[kX]) && !bytes) return "only float32, int8 and uint8";
  if (bytes && !desc.node->epilogue.empty()) return "fused steps are for float32";
  if (desc.node->since_version < 11) return "only opset 11 and later";
  if (desc.inputs[kX].shape.rank() != 4) return "only four axes";
  if (!repeats_elements(*desc.node)) return "only nearest by whole factors: asymmetric floor, or half_pixel round";
  if (attr_given(*desc.node, ResizeAttr::kAxes)) return "no axes";
  if (desc.has_input(kSizes)) return "only with scales";
  const Weight* scales = desc.constant(kScales);
  if (scales == nullptr || scales->desc.shape.elements() != 4) return "scales must be constant";
  const float* s = scales->as<float>();
  for (int i = 0; i < 4; ++i) {
    const bool whole = s[i] >= 1 && s[i] <= 64 && s[i] == static_cast<float>(static_cast<int>(s[i]));
    if (!whole || (i < 2 && s[i] != 1)) return "only whole factors of the last two axes";
  }
  return refuse_long_axes(desc.outputs[0].shape);
}

void plan_resize(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& y = desc.outputs[0].shape;
  fail_if(refuse_long_axes(y));
  ResizeState& s = plan->state<ResizeState>();
  s = {x.elements(0, 2), to_int(x[2]), to_int(x[3]), x[2] > 0 ? to_int(y[2] / x[2]) : 1, x[3] > 0 ? to_int(y[3] / x[3]) : 1};
  count_bytes(desc, plan);
}

void run_resize(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ResizeState& s = args.plan->state<ResizeState>();
  if (!is_float(args.desc->inputs[0])) {
    return launcher(args).run(kResizeBytes, {std::int64_t{s.in_h} * s.factor_h, s.planes}, args.inputs[0], args.outputs[0], s.in_h,
                              s.in_w, s.factor_h, s.factor_w);
  }
  launcher(args).run(kResizeNearest, {std::int64_t{s.in_h} * s.factor_h, s.planes}, args.inputs[0], args.outputs[0], s.in_h, s.in_w,
                     s.factor_h, s.factor_w, args.desc->node->epilogue);
}

// ---- BatchNormalization ----

struct BatchNormState {
  std::int64_t planes, channels, elements;
  float epsilon;
};

Refusal supports_batch_norm(const OpDesc& desc) {
  if (const char* reason = why_not_plain_batch_norm(*desc.node)) return reason;
  if (desc.inputs[0].shape.rank() < 2) return "only with a channel axis";
  return refuse_unless_float(desc);
}

void plan_batch_norm(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  plan->state<BatchNormState>() = {x.elements(0, 2), x[1], x.elements(2, x.rank()),
                                   attr_float(*desc.node, BatchNormAttr::kEpsilon)};
  plan->in_place = 1;
  plan->flops = 2.0 * static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_batch_norm(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const BatchNormState& s = args.plan->state<BatchNormState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.elements);
  cl.run(kBatchNorm, {ceil_div(s.elements, chunk), s.planes}, args.inputs[BatchNormInput::kX], args.inputs[BatchNormInput::kScale],
         args.inputs[BatchNormInput::kBias], args.inputs[BatchNormInput::kMean], args.inputs[BatchNormInput::kVariance],
         args.outputs[0], s.channels, s.elements, chunk, s.epsilon, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "resize_nearest", .op = "Resize", .rank = 10, .supports = supports_resize, .plan = plan_resize, .run = run_resize},
    {.name = "batch_norm",
     .op = "BatchNormalization",
     .rank = 10,
     .supports = supports_batch_norm,
     .plan = plan_batch_norm,
     .run = run_batch_norm},
};

}  // namespace

extern const KernelFamily move_opencl_kernels;
const KernelFamily move_opencl_kernels = {kKernels};

}  // namespace evn
