// Resize and Upsample of float32: nearest and linear, of any axes, and in a slower form all others. move.cc has whole factors of
// the last two axes.
#include "ops/resize.h"

#include <cstdlib>

#include "backends/opencl/kernels/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kResize{"resize", "resize"};
constexpr OpenClFunction kResample{"resize", "resample"};

// The struct that resize.cl takes, laid out as there.
struct Params {
  std::int32_t rank, linear, coordinates, nearest;
  std::int64_t rows, row_chunk;
  std::int64_t in[kMaxRank], out[kMaxRank], stride[kMaxRank];
  std::int64_t step[kMaxRank], start[kMaxRank], unit[kMaxRank];
  float scale[kMaxRank];
  std::int8_t same[kMaxRank], small[kMaxRank];
};
static_assert(sizeof(Params) <= KernelPlan::kStateBytes);

Refusal refuse_common(const OpDesc& desc) {
  if (!is_float(desc.inputs[0])) return "only float32";
  if (desc.inputs[0].shape.rank() == 0) return "a scalar";
  if (const Refusal refusal = refuse_long_axes(desc.inputs[0].shape)) return refusal;
  return refuse_long_axes(desc.outputs[0].shape);
}

Refusal supports(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  const Node& node = *desc.node;
  if (attr_string(node, ResizeAttr::kMode) == "cubic") return "not cubic";
  if (node.op->since < 11) return nullptr;
  if (attr_string(node, ResizeAttr::kCoordinateTransformationMode) == "tf_crop_and_resize") return "not tf_crop_and_resize";
  const bool antialias = attr_given(node, ResizeAttr::kAntialias) && attr_int(node, ResizeAttr::kAntialias) != 0;
  return antialias ? "no antialias" : nullptr;
}

std::int32_t number_of(CoordinateMode mode) {
  switch (mode) {
    case CoordinateMode::kHalfPixel: return 0;
    case CoordinateMode::kHalfPixelSymmetric: return 1;
    case CoordinateMode::kPytorchHalfPixel: return 2;
    case CoordinateMode::kAlignCorners: return 3;
    case CoordinateMode::kTfCropAndResize: return 5;
    case CoordinateMode::kTfHalfPixelForNn: return 6;
    default: return 4;
  }
}

// Float32 has all whole numbers up to here, so that quotients of smaller ones are rounded down rightly.
constexpr std::int64_t kMostOfFloat = 1 << 24;

bool fits_float(const ResizeAxis& a) { return a.step * a.output + std::abs(a.start) < kMostOfFloat && a.unit < kMostOfFloat; }

std::int32_t number_of(NearestMode mode) {
  switch (mode) {
    case NearestMode::kRoundPreferFloor: return 0;
    case NearestMode::kRoundPreferCeil: return 1;
    case NearestMode::kFloor: return 2;
    case NearestMode::kCeil: return 3;
    default: return 4;
  }
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape& y = desc.outputs[0].shape;
  const KnownInputs known(desc);
  const ResizeGeometry g = resize_geometry(*desc.node, known.span(), y);
  Params& p = plan->state<Params>();
  p = Params{};
  p.rank = y.rank();
  p.linear = g.mode == ResizeMode::kLinear;
  p.coordinates = number_of(g.coordinates);
  p.nearest = number_of(g.nearest);
  p.rows = y.elements(0, y.rank() - 1);
  row_major_strides(desc.inputs[0].shape, p.stride);
  for (int i = 0; i < p.rank; ++i) {
    p.in[i] = to_int(g.axis[i].input);
    p.out[i] = to_int(g.axis[i].output);
    p.scale[i] = g.axis[i].scale;
    p.step[i] = g.axis[i].step;
    p.start[i] = g.axis[i].start;
    p.unit[i] = g.axis[i].unit;
    p.same[i] = g.is_identity(i);
    p.small[i] = fits_float(g.axis[i]);
  }
  plan->flops = 4.0 * static_cast<double>(y.elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Params p = args.plan->state<Params>();
  Launcher& cl = launcher(args);
  const std::int64_t width = p.out[p.rank - 1] > 0 ? p.out[p.rank - 1] : 1;
  p.row_chunk = cl.is_cpu() ? ceil_div(2048, width) : 1;
  cl.run(kResize, {ceil_div(p.rows, p.row_chunk)}, args.inputs[0], args.outputs[0], p, args.desc->node->epilogue);
}

// ---- cubic, antialias, tf_crop_and_resize ----

// The struct that resize.cl takes, laid out as there.
struct Sampling {
  std::int32_t rank, mode, coordinates, nearest, antialias, exclude_outside;
  float cubic_a, extrapolation;
  std::int64_t n, chunk;
  std::int32_t in[kMaxRank], out[kMaxRank], same[kMaxRank];
  float scale[kMaxRank], roi_begin[kMaxRank], roi_end[kMaxRank];
  std::int64_t stride[kMaxRank], step[kMaxRank], start[kMaxRank], unit[kMaxRank];
};
static_assert(sizeof(Sampling) <= KernelPlan::kStateBytes);

// Refusal of outputs that are sums of 2^31 elements or more.
Refusal refuse_many_taps(const ResizeGeometry& g) {
  std::int64_t taps = 1;
  for (int i = 0; i < g.rank; ++i) {
    const std::int64_t of_axis = resize_most_taps(g, i);
    if (of_axis > INT32_MAX / taps) return "an output is the sum of too many elements";
    taps *= of_axis;
  }
  return nullptr;
}

// True if the geometry can be computed before a run, and there is something to sample.
bool has_known_geometry(const OpDesc& desc) {
  for (int i = 1; i < static_cast<int>(desc.inputs.size()); ++i) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return false;
  }
  const auto has_elements = [](const Shape& s) { return s.is_known() && s.elements() > 0; };
  return has_elements(desc.inputs[0].shape) && has_elements(desc.outputs[0].shape);
}

Refusal supports_any(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  if (!has_known_geometry(desc)) return nullptr;
  const KnownInputs known(desc);
  return refuse_many_taps(resize_geometry(*desc.node, known.span(), desc.outputs[0].shape));
}

void plan_resample(const OpDesc& desc, KernelPlan* plan) {
  const Shape& y = desc.outputs[0].shape;
  const KnownInputs known(desc);
  const ResizeGeometry g = resize_geometry(*desc.node, known.span(), y);
  fail_if(refuse_many_taps(g));
  Sampling& p = plan->state<Sampling>();
  p = Sampling{};
  p.rank = y.rank();
  p.mode = g.mode == ResizeMode::kNearest ? 0 : g.mode == ResizeMode::kLinear ? 1 : 2;
  p.coordinates = number_of(g.coordinates);
  p.nearest = number_of(g.nearest);
  p.antialias = g.antialias;
  p.exclude_outside = g.exclude_outside && (g.antialias || g.mode == ResizeMode::kCubic);
  p.cubic_a = g.cubic_a;
  p.extrapolation = g.extrapolation_value;
  p.n = y.elements();
  row_major_strides(desc.inputs[0].shape, p.stride);
  for (int i = 0; i < p.rank; ++i) {
    const ResizeAxis& axis = g.axis[i];
    p.in[i] = to_int(axis.input);
    p.out[i] = to_int(axis.output);
    p.same[i] = g.is_identity(i);
    p.scale[i] = axis.scale;
    p.roi_begin[i] = axis.roi_begin;
    p.roi_end[i] = axis.roi_end;
    p.step[i] = axis.step;
    p.start[i] = axis.start;
    p.unit[i] = axis.unit;
  }
  plan->flops = 64.0 * static_cast<double>(p.n);
  count_bytes(desc, plan);
}

void run_resample(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Sampling p = args.plan->state<Sampling>();
  Launcher& cl = launcher(args);
  p.chunk = cl.is_cpu() ? 256 : 1;
  cl.run(kResample, {ceil_div(p.n, p.chunk)}, args.inputs[0], args.outputs[0], p, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "resize", .op = "Resize", .rank = 5, .supports = supports, .plan = plan, .run = run},
    {.name = "upsample", .op = "Upsample", .rank = 5, .supports = supports, .plan = plan, .run = run},
    {.name = "resample", .op = "Resize", .rank = 2, .supports = supports_any, .plan = plan_resample, .run = run_resample},
    {.name = "resample_old", .op = "Upsample", .rank = 2, .supports = supports_any, .plan = plan_resample, .run = run_resample},
};

}  // namespace

extern const KernelFamily resize_opencl_kernels;
const KernelFamily resize_opencl_kernels = {kKernels};

}  // namespace evn
