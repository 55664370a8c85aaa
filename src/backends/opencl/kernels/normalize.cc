// InstanceNormalization, GroupNormalization, RMSNormalization, the forms of LayerNormalization that rows.cc does not take,
// SkipLayerNormalization, MeanVarianceNormalization, LpNormalization and Hardmax of float32.
#include <algorithm>

#include "backends/opencl/kernels/grouped.h"
#include "backends/opencl/kernels/support.h"
#include "ops/infra/check.h"
#include "ops/layer_norm.h"

namespace evn {
namespace {

constexpr OpenClFunction kRows{"normalize", "normalize_rows"};
constexpr OpenClFunction kLines{"normalize", "normalize_lines"};
constexpr OpenClFunction kHardmax{"normalize", "hardmax"};
constexpr OpenClFunction kGroupedRows = row_function("normalize_rows");

// Numbers as normalize.cl has them.
enum : std::int32_t { kMoments, kRootMeanSquare, kDeviation, kSum1, kSum2 };
struct Lines {
  std::int32_t kind, kept, reduced, padding;
  std::int64_t lines, count, chunk;
  std::int64_t kept_dim[kMaxRank], kept_stride[kMaxRank];
  std::int64_t reduced_dim[kMaxRank], reduced_stride[kMaxRank];
};

std::int64_t line_chunk(const Launcher& cl, std::int64_t lines, std::int64_t length) {
  return cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, lines * length) / std::max<std::int64_t>(length, 1)) : 1;
}

Refusal supports_floats(const OpDesc& desc) {
  for (const TensorDesc& input : desc.inputs) {
    if (input.dtype != DType::kUndefined && !is_float(input)) return "only float32";
  }
  return desc.outputs[0].dtype == DType::kUndefined ? "without its first output" : nullptr;
}

// Refusals of GroupNormalization, RMSNormalization and LayerNormalization, whose last attribute says in what they compute.
Refusal supports_stashed(const OpDesc& desc) {
  return stash_is_float32(*desc.node, LayerNormAttr::kStashType) ? supports_floats(desc) : kStashRefusal;
}

// ---- rows that lie side by side, then scale and bias ----

struct RowState {
  std::int64_t rows, length;
  float epsilon;
  std::int32_t kind;
  Shape seen, scale, bias;  // the shapes that the rows, the scale and the bias are seen in, to be broadcast
};

void enqueue_rows(const KernelArgs& args, const Buffer& x) {
  const RowState& s = args.plan->state<RowState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = line_chunk(cl, s.rows, s.length);
  const auto output = [&](std::size_t i) { return i < args.outputs.size() && args.outputs[i].memory != nullptr; };
  const std::int32_t has_mean = s.kind == kMoments && output(1);
  const std::int32_t has_factor = s.kind == kMoments && output(2);
  const Buffer& y = args.outputs[0];
  const Buffer& means = has_mean != 0 ? args.outputs[1] : y;
  const Buffer& factors = has_factor != 0 ? args.outputs[2] : y;
  if (wants_row_groups(cl, s.length)) {
    const std::int32_t of_squares = s.kind == kRootMeanSquare;
    return cl.run(kGroupedRows, row_grid(s.rows), x, y, means, factors, s.length, s.epsilon, of_squares, has_mean, has_factor,
                  Epilogue{});
  }
  cl.run(kRows, {ceil_div(s.rows, chunk)}, x, y, means, factors, s.rows, s.length, chunk, s.epsilon, s.kind, has_mean, has_factor,
         Epilogue{});
}

void scale_rows(const KernelArgs& args, const Buffer* scale, const Buffer* bias) {
  const RowState& s = args.plan->state<RowState>();
  Launcher& cl = launcher(args);
  const Buffer& y = args.outputs[0];
  const Epilogue& last = args.desc->node->epilogue;
  if (scale != nullptr) run_arithmetic(cl, Arithmetic::kMul, s.seen, y, s.scale, *scale, y, bias != nullptr ? Epilogue{} : last);
  if (bias != nullptr) run_arithmetic(cl, Arithmetic::kAdd, s.seen, y, s.bias, *bias, y, last);
}

void run_rows(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  enqueue_rows(args, args.inputs[0]);
  scale_rows(args, &args.inputs[1], args.desc->has_input(2) ? &args.inputs[2] : nullptr);
}

void finish_plan(const OpDesc& desc, KernelPlan* plan) {
  plan->flops = 8.0 * static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

// Groups of channels; `span` channels have one scale.
void plan_groups(const OpDesc& desc, std::int64_t groups, std::int64_t span, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  RowState& s = plan->state<RowState>();
  s.rows = x[0] * groups;
  s.length = x[1] / groups * x.elements(2, x.rank());
  s.epsilon = attr_float(*desc.node, 0);
  s.kind = kMoments;
  s.seen = {x[0], x[1] / span, span * x.elements(2, x.rank())};
  s.scale = s.bias = {x[1] / span, 1};
  finish_plan(desc, plan);
}

void plan_instance(const OpDesc& desc, KernelPlan* plan) { plan_groups(desc, desc.inputs[0].shape[1], 1, plan); }

void plan_group(const OpDesc& desc, KernelPlan* plan) {
  const std::int64_t groups = attr_int(*desc.node, 1);
  plan_groups(desc, groups, desc.node->op->since < 21 ? desc.inputs[0].shape[1] / groups : 1, plan);
}

void plan_from_axis(const OpDesc& desc, int axis, float epsilon, std::int32_t kind, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  RowState& s = plan->state<RowState>();
  s.rows = x.elements(0, axis);
  s.length = x.elements(axis, x.rank());
  s.epsilon = epsilon;
  s.kind = kind;
  s.seen = x;
  s.scale = desc.inputs[1].shape;
  if (desc.has_input(2)) s.bias = desc.inputs[2].shape;
  finish_plan(desc, plan);
}

void plan_rms(const OpDesc& desc, KernelPlan* plan) {
  const int axis = normalize_axis(attr_int(*desc.node, 0), desc.inputs[0].shape.rank());
  plan_from_axis(desc, axis, attr_float(*desc.node, 1), kRootMeanSquare, plan);
}

void plan_layer(const OpDesc& desc, KernelPlan* plan) {
  const int axis = normalize_axis(attr_int(*desc.node, LayerNormAttr::kAxis), desc.inputs[0].shape.rank());
  plan_from_axis(desc, axis, attr_float(*desc.node, LayerNormAttr::kEpsilon), kMoments, plan);
}

// ---- SkipLayerNormalization: the sum goes to output 3, or to the output itself, and is normalized there ----

enum : std::size_t { kX, kSkip, kGamma, kBeta, kBias };

void plan_skip(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  plan_from_axis(desc, x.rank() - 1, attr_float(*desc.node, 0), kMoments, plan);
  RowState& s = plan->state<RowState>();
  s.scale = desc.inputs[kGamma].shape;
  s.bias = {x[x.rank() - 1]};
}

void run_skip(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OpDesc& desc = *args.desc;
  Launcher& cl = launcher(args);
  const Shape& x = desc.inputs[kX].shape;
  const Buffer& sum = args.outputs.size() > 3 && args.outputs[3].memory != nullptr ? args.outputs[3] : args.outputs[0];
  run_arithmetic(cl, Arithmetic::kAdd, x, args.inputs[kX], desc.inputs[kSkip].shape, args.inputs[kSkip], sum, Epilogue{});
  if (desc.has_input(kBias))
    run_arithmetic(cl, Arithmetic::kAdd, x, sum, desc.inputs[kBias].shape, args.inputs[kBias], sum, Epilogue{});
  enqueue_rows(args, sum);
  scale_rows(args, &args.inputs[kGamma], desc.has_input(kBeta) ? &args.inputs[kBeta] : nullptr);
}

// ---- lines through any axes ----

void plan_lines(const OpDesc& desc, std::uint32_t mask, std::int32_t kind, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  std::int64_t strides[kMaxRank] = {};
  row_major_strides(x, strides);
  Lines& p = plan->state<Lines>();
  p = Lines{};
  p.kind = kind;
  p.lines = p.count = 1;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = (mask >> i & 1u) != 0;
    std::int32_t& rank = reduced ? p.reduced : p.kept;
    (reduced ? p.reduced_dim : p.kept_dim)[rank] = x[i];
    (reduced ? p.reduced_stride : p.kept_stride)[rank++] = strides[i];
    (reduced ? p.count : p.lines) *= x[i];
  }
  plan->in_place = 1;
  finish_plan(desc, plan);
}

void plan_mean_variance(const OpDesc& desc, KernelPlan* plan) {
  constexpr std::int64_t kDefault[] = {0, 2, 3};
  const std::span<const std::int64_t> given = attr_ints(*desc.node, 0);
  const std::span<const std::int64_t> axes = given.empty() ? std::span<const std::int64_t>(kDefault) : given;
  plan_lines(desc, axes_mask(axes, desc.inputs[0].shape.rank()), kDeviation, plan);
}

void plan_lp(const OpDesc& desc, KernelPlan* plan) {
  const int axis = normalize_axis(attr_int(*desc.node, 0), desc.inputs[0].shape.rank());
  plan_lines(desc, 1u << axis, attr_int(*desc.node, 1) == 2 ? kSum2 : kSum1, plan);
}

void run_lines(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Lines p = args.plan->state<Lines>();
  Launcher& cl = launcher(args);
  p.chunk = line_chunk(cl, p.lines, p.count);
  cl.run(kLines, {ceil_div(p.lines, p.chunk)}, args.inputs[0], args.outputs[0], p, args.desc->node->epilogue);
}

// ---- Hardmax ----

struct HardmaxState {
  std::int64_t lines, length, inner;
};

void plan_hardmax(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, 0), x.rank());
  const bool one_axis = desc.node->op->since >= 13;
  const std::int64_t length = one_axis ? x[axis] : x.elements(axis, x.rank());
  const std::int64_t inner = one_axis ? x.elements(axis + 1, x.rank()) : 1;
  plan->state<HardmaxState>() = {x.elements(0, axis) * inner, length, inner};
  count_bytes(desc, plan);
}

void run_hardmax(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const HardmaxState& s = args.plan->state<HardmaxState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = line_chunk(cl, s.lines, s.length);
  cl.run(kHardmax, {ceil_div(s.lines, chunk)}, args.inputs[0], args.outputs[0], s.lines, s.length, s.inner, chunk,
         args.desc->node->epilogue);
}

using Plan = void (*)(const OpDesc&, KernelPlan*);
using Run = void (*)(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&);

using Supports = Refusal (*)(const OpDesc&);

constexpr Kernel row(const char* name, const char* op, Plan plan, Run run, int rank = 10, const char* domain = "",
                     Supports supports = supports_floats) {
  return {.name = name, .op = op, .domain = domain, .rank = rank, .supports = supports, .plan = plan, .run = run};
}

constexpr Kernel kKernels[] = {
    row("instance_norm", "InstanceNormalization", plan_instance, run_rows),
    row("group_norm", "GroupNormalization", plan_group, run_rows, 10, "", supports_stashed),
    row("rms_norm", "RMSNormalization", plan_rms, run_rows, 10, "", supports_stashed),
    row("layer_norm_broadcast", "LayerNormalization", plan_layer, run_rows, 5, "", supports_stashed),
    row("skip_layer_norm", "SkipLayerNormalization", plan_skip, run_skip, 10, "com.microsoft"),
    row("mean_variance_norm", "MeanVarianceNormalization", plan_mean_variance, run_lines),
    row("lp_norm", "LpNormalization", plan_lp, run_lines),
    row("hardmax", "Hardmax", plan_hardmax, run_hardmax),
};

}  // namespace

extern const KernelFamily normalize_opencl_kernels;
const KernelFamily normalize_opencl_kernels = {kKernels};

}  // namespace evn
