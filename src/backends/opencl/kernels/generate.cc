// Tensors that are made of a few numbers, known when a run is planned: Range, Shape, Size, EyeLike.
#include <algorithm>

#include "backends/opencl/kernels/integer.h"

namespace evn {
namespace {

constexpr OpenClFunction kRangeFloats{"generate", "range_floats"};
constexpr OpenClFunction kRangeIntegers{"generate", "range_integers"};
constexpr OpenClFunction kPutLongs{"generate", "put_longs"};
constexpr OpenClFunction kEye{"generate", "eye"};

// ---- Range ----

struct RangeState {
  std::int64_t n;
  std::uint64_t start, delta;  // integers
  float real_start, real_delta;
};

Refusal supports_range(const OpDesc& desc) {
  return is_float(desc.inputs[0]) || whole_type(desc.inputs[0].dtype) >= 0 ? nullptr : "only float32 and integers";
}

std::uint64_t whole_value(const Weight& w) {
  switch (w.desc.dtype) {
    case DType::kInt16: return static_cast<std::uint64_t>(std::int64_t{*w.as<std::int16_t>()});
    case DType::kInt32: return static_cast<std::uint64_t>(std::int64_t{*w.as<std::int32_t>()});
    default: return static_cast<std::uint64_t>(*w.as<std::int64_t>());
  }
}

// The three scalars are inputs that are read by value.
void plan_range(const OpDesc& desc, KernelPlan* plan) {
  RangeState& s = plan->state<RangeState>();
  s.n = desc.outputs[0].shape.elements();
  if (is_float(desc.inputs[0])) {
    s.real_start = *desc.constant(0)->as<float>();
    s.real_delta = *desc.constant(2)->as<float>();
  } else {
    s.start = whole_value(*desc.constant(0));
    s.delta = whole_value(*desc.constant(2));
  }
  plan->bytes = static_cast<double>(desc.outputs[0].size_bytes());
}

void run_range(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const RangeState& s = args.plan->state<RangeState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.n);
  const Grid grid{ceil_div(s.n, chunk)};
  const TensorDesc& y = args.desc->outputs[0];
  if (is_float(y)) {
    return cl.run(kRangeFloats, grid, args.outputs[0], s.n, chunk, s.real_start, s.real_delta, args.desc->node->epilogue);
  }
  cl.run(kRangeIntegers, grid, args.outputs[0], s.n, chunk, s.start, s.delta, static_cast<std::int32_t>(dtype_size(y.dtype)));
}

// ---- Shape and Size: as data; shape arithmetic needs no device ----

struct Longs {
  std::int64_t v[kMaxRank];
};

Refusal supports_any(const OpDesc&) { return nullptr; }

void plan_shape(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const std::int64_t start = attr_given(*desc.node, 0) ? attr_int(*desc.node, 0) : 0;
  const std::int64_t first = std::clamp<std::int64_t>(start < 0 ? start + x.rank() : start, 0, x.rank());
  const std::int64_t count = desc.outputs[0].shape[0];
  Longs& values = plan->state<Longs>();
  for (std::int64_t i = 0; i < count; ++i) values.v[i] = x[static_cast<int>(first + i)];
}

void plan_size(const OpDesc& desc, KernelPlan* plan) { plan->state<Longs>().v[0] = desc.inputs[0].shape.elements(); }

void run_put(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const auto count = static_cast<std::int32_t>(args.desc->outputs[0].shape.elements());
  launcher(args).run(kPutLongs, {count}, args.outputs[0], args.plan->state<Longs>(), count);
}

// ---- EyeLike ----

struct EyeState {
  std::int64_t rows, columns, k;
  std::uint64_t bits;
};

// The bits of 1; 0: not known here.
std::uint64_t one_of(DType dtype) {
  if (dtype == DType::kBool || whole_type(dtype) >= 0) return 1;
  return dtype == DType::kFloat32 ? 0x3f800000 : dtype == DType::kFloat64 ? 0x3ff0000000000000 : 0;
}

Refusal supports_eye(const OpDesc& desc) { return one_of(desc.outputs[0].dtype) == 0 ? "not for this element type" : nullptr; }

void plan_eye(const OpDesc& desc, KernelPlan* plan) {
  const Shape& y = desc.outputs[0].shape;
  const std::int64_t k = std::clamp(attr_int(*desc.node, 1), -y[0], y[1]);
  plan->state<EyeState>() = {y[0], y[1], k, one_of(desc.outputs[0].dtype)};
  plan->bytes = static_cast<double>(desc.outputs[0].size_bytes());
}

void run_eye(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const EyeState& s = args.plan->state<EyeState>();
  const auto width = static_cast<std::int32_t>(dtype_size(args.desc->outputs[0].dtype));
  launcher(args).run(kEye, {s.columns, s.rows}, args.outputs[0], s.columns, s.k, width, s.bits, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "range", .op = "Range", .rank = 10, .supports = supports_range, .plan = plan_range, .run = run_range},
    {.name = "shape", .op = "Shape", .rank = 10, .supports = supports_any, .plan = plan_shape, .run = run_put, .takes_empty = true},
    {.name = "size", .op = "Size", .rank = 10, .supports = supports_any, .plan = plan_size, .run = run_put, .takes_empty = true},
    {.name = "eye_like", .op = "EyeLike", .rank = 10, .supports = supports_eye, .plan = plan_eye, .run = run_eye},
};

}  // namespace

extern const KernelFamily generate_opencl_kernels;
const KernelFamily generate_opencl_kernels = {kKernels};

}  // namespace evn
