// Softmax, LogSoftmax, LayerNormalization, the reductions, ArgMax and ArgMin, of float32.
#include "backends/opencl/kernels/reduce.h"
#include "ops/layer_norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace evn {
namespace {

constexpr OpenClFunction kArgExtreme{"rows", "arg_extreme"};
constexpr OpenClFunction kSoftmaxRows{"rows", "softmax_rows"};
constexpr OpenClFunction kSoftmaxColumns{"rows", "softmax_columns"};
constexpr OpenClFunction kLayerNorm{"rows", "layer_norm"};
constexpr OpenClFunction kGroupedLayerNorm = row_function("layer_norm");

// ---- reductions ----

std::uint32_t axes_of(const OpDesc& desc) {
  std::int64_t values[kMaxRank];
  const std::size_t n = reduce_axes_is_input(*desc.node) ? read_axes(desc, 1, values) : 0;
  return reduce_axes(*desc.node, desc.inputs[0].shape.rank(), {values, n});
}

Refusal supports_reduce(const OpDesc& desc) { return is_float(desc.inputs[0]) ? nullptr : "only float32"; }

template <Fold kFold>
void plan_reduce(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const std::uint32_t bits = axes_of(desc);
  MergedAxes axes;
  for (int i = 0; i < x.rank(); ++i) axes.add(x[i], (bits >> i & 1u) != 0);
  plan->state<Reduce>() = make_reduce(axes, kFold);
  plan->flops = static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_reduction(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  run_reduce(launcher(args), args.plan->state<Reduce>(), args.inputs[0], args.outputs[0], args.desc->node->epilogue);
}

// ---- ArgMax and ArgMin ----

enum : int { kAxis, kKeepDims, kSelectLast };

struct ArgState {
  std::int64_t outputs, length, inner;
  std::int32_t last;
};

Refusal supports_arg(const OpDesc& desc) {
  if (desc.inputs[0].shape.rank() == 0) return "a scalar";
  return is_float(desc.inputs[0]) ? nullptr : "only float32";
}

void plan_arg(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, kAxis), x.rank());
  const bool last = attr_given(*desc.node, kSelectLast) && attr_int(*desc.node, kSelectLast) != 0;
  plan->state<ArgState>() = {desc.outputs[0].shape.elements(), x[axis], x.elements(axis + 1, x.rank()), last ? 1 : 0};
  count_bytes(desc, plan);
}

template <std::int32_t kMaximum>
void run_arg(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ArgState& s = args.plan->state<ArgState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = row_chunk(cl, s.outputs, s.length);
  cl.run(kArgExtreme, {ceil_div(s.outputs, chunk)}, args.inputs[0], args.outputs[0], s.outputs, s.length, s.inner, chunk,
         std::int32_t{kMaximum}, s.last);
}

// ---- Softmax ----

Refusal supports_softmax(const OpDesc& desc) { return refuse_unless_float(desc); }

void plan_softmax(const OpDesc& desc, KernelPlan* plan) {
  plan->state<SoftmaxView>() = softmax_view(*desc.node, desc.inputs[0].shape);
  plan->in_place = 1;
  plan->flops = 16.0 * static_cast<double>(desc.inputs[0].shape.elements());
  count_bytes(desc, plan);
}

template <std::int32_t kLogarithm>
void run_softmax(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const SoftmaxView& v = args.plan->state<SoftmaxView>();
  Launcher& cl = launcher(args);
  const Epilogue& epilogue = args.desc->node->epilogue;
  if (v.inner == 1) {
    if (wants_row_groups(cl, v.length)) {
      return cl.run(kGroupedSoftmax, row_grid(v.outer), args.inputs[0], args.outputs[0], v.length, std::int32_t{kLogarithm},
                    epilogue);
    }
    const std::int64_t chunk = row_chunk(cl, v.outer, v.length);
    return cl.run(kSoftmaxRows, {ceil_div(v.outer, chunk)}, args.inputs[0], args.outputs[0], v.outer, v.length, chunk,
                  std::int32_t{kLogarithm}, epilogue);
  }
  const std::int64_t chunk = cl.is_cpu() ? 8 * cl.lanes() : cl.lanes();
  cl.run(kSoftmaxColumns, {ceil_div(v.inner, chunk), v.outer}, args.inputs[0], args.outputs[0], v.length, v.inner, chunk,
         std::int32_t{kLogarithm}, epilogue);
}

// ---- LayerNormalization ----

struct LayerNormState {
  std::int64_t rows, length;
  float epsilon;
};

Refusal supports_layer_norm(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, LayerNormAttr::kAxis), x.rank());
  for (int input = 1; input <= 2 && desc.has_input(input); ++input) {
    const Shape& s = desc.inputs[static_cast<std::size_t>(input)].shape;
    if (s.rank() != x.rank() - axis) return "scale and bias must have the normalized axes";
    for (int i = 0; i < s.rank(); ++i) {  // what does not broadcast has the input's dim, known yet or not
      if (s[i] < 1 || (s[i] == 1 && x[axis + i] != 1)) return "scale and bias must not be broadcast";
    }
  }
  return nullptr;
}

void plan_layer_norm(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, LayerNormAttr::kAxis), x.rank());
  plan->state<LayerNormState>() = {x.elements(0, axis), x.elements(axis, x.rank()),
                                   attr_float(*desc.node, LayerNormAttr::kEpsilon)};
  plan->in_place = 1;
  plan->flops = 8.0 * static_cast<double>(x.elements());
  count_bytes(desc, plan);
}

void run_layer_norm(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const LayerNormState& s = args.plan->state<LayerNormState>();
  Launcher& cl = launcher(args);
  const std::int32_t has_bias = args.desc->has_input(2);
  const Buffer& bias = args.inputs[has_bias != 0 ? 2 : 1];
  const Epilogue& epilogue = args.desc->node->epilogue;
  if (wants_row_groups(cl, s.length)) {
    return cl.run(kGroupedLayerNorm, row_grid(s.rows), args.inputs[0], args.inputs[1], bias, args.outputs[0], s.length, s.epsilon,
                  has_bias, epilogue);
  }
  const std::int64_t chunk = row_chunk(cl, s.rows, s.length);
  cl.run(kLayerNorm, {ceil_div(s.rows, chunk)}, args.inputs[0], args.inputs[1], bias, args.outputs[0], s.rows, s.length, chunk,
         s.epsilon, has_bias, epilogue);
}

template <Fold kFold>
constexpr Kernel reduction(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports_reduce, .plan = plan_reduce<kFold>, .run = run_reduction};
}

constexpr Kernel kKernels[] = {
    reduction<Fold::kSum>("reduce_sum", "ReduceSum"),
    reduction<Fold::kMean>("reduce_mean", "ReduceMean"),
    reduction<Fold::kMax>("reduce_max", "ReduceMax"),
    reduction<Fold::kMin>("reduce_min", "ReduceMin"),
    reduction<Fold::kProd>("reduce_prod", "ReduceProd"),
    reduction<Fold::kL1>("reduce_l1", "ReduceL1"),
    reduction<Fold::kL2>("reduce_l2", "ReduceL2"),
    reduction<Fold::kSumSquare>("reduce_sum_square", "ReduceSumSquare"),
    {.name = "arg_max", .op = "ArgMax", .rank = 10, .supports = supports_arg, .plan = plan_arg, .run = run_arg<1>},
    {.name = "arg_min", .op = "ArgMin", .rank = 10, .supports = supports_arg, .plan = plan_arg, .run = run_arg<0>},
    {.name = "softmax", .op = "Softmax", .rank = 10, .supports = supports_softmax, .plan = plan_softmax, .run = run_softmax<0>},
    {.name = "log_softmax",
     .op = "LogSoftmax",
     .rank = 10,
     .supports = supports_softmax,
     .plan = plan_softmax,
     .run = run_softmax<1>},
    {.name = "layer_norm",
     .op = "LayerNormalization",
     .rank = 10,
     .supports = supports_layer_norm,
     .plan = plan_layer_norm,
     .run = run_layer_norm},
};

}  // namespace

extern const KernelFamily rows_opencl_kernels;
const KernelFamily rows_opencl_kernels = {kKernels};

}  // namespace evn
