// Conv, ConvTranspose, MaxPool, AveragePool and LpPool of float32 in the forms that no other kernel takes: three spatial axes,
// weights that are computed, any strides, pads and groups, the indices of maxima.
#include <algorithm>

#include "backends/opencl/kernels/support.h"
#include "ops/conv.h"
#include "ops/conv_transpose.h"
#include "ops/pool.h"

namespace evn {
namespace {

constexpr OpenClFunction kPack{"window", "pack_weights"};
constexpr OpenClFunction kConvolve{"window", "convolve"};
constexpr OpenClFunction kPool{"window", "pool_window"};

enum : int { kX, kW, kB };

// The struct that window.cl takes, laid out as there.
struct Axis {
  std::int32_t input, output, kernel, stride, dilation, pad, border;
};

void set_axes(const Window& window, Axis (&axes)[kMaxSpatial]) {
  for (int i = 0; i < kMaxSpatial; ++i) {
    const WindowAxis& a = window.axis[i];
    axes[i] = {to_int(a.input),    to_int(a.output),    to_int(a.kernel),           to_int(a.stride),
               to_int(a.dilation), to_int(a.pad_begin), to_int(a.input + a.pad_end)};
  }
}

// ---- convolutions ----

struct Convolution {
  Axis axis[kMaxSpatial];
  std::int32_t channels, outputs, groups, padded, transposed, has_bias;
};

struct ConvolutionState {
  Convolution p;
  std::int64_t pixels, taps, images;
};

bool is_transposed(const Node& node) { return node.op_type == "ConvTranspose"; }

std::int64_t group_of(const Node& node) {
  return attr_int(node, is_transposed(node) ? int{ConvTransposeAttr::kGroup} : int{ConvAttr::kGroup});
}

// Sizes of one group.
struct Sizes {
  std::int64_t groups, channels, outputs, taps, padded;
};

Sizes sizes_of(const OpDesc& desc) {
  const Shape& w = desc.inputs[kW].shape;
  const std::int64_t groups = group_of(*desc.node);
  const bool transposed = is_transposed(*desc.node);
  const std::int64_t channels = transposed ? w[0] / groups : w[1];
  const std::int64_t outputs = transposed ? w[1] : w[0] / groups;
  return {groups, channels, outputs, w.elements(2, w.rank()), padded_to_lanes(outputs)};
}

std::size_t packed_bytes(const Sizes& s) {
  return TensorDesc{DType::kFloat32, {s.groups, s.channels, s.taps, s.padded}}.size_bytes();
}

Refusal supports_convolution(const OpDesc& desc) {
  if (desc.inputs[kX].shape.rank() < 3) return "no spatial axes";
  return refuse_unless_float(desc);
}

std::size_t prepack_bytes(const OpDesc& desc, int input) { return input == kW ? packed_bytes(sizes_of(desc)) : 0; }

std::uint64_t prepack_variant(const OpDesc& desc, int) {
  return static_cast<std::uint64_t>(group_of(*desc.node)) * 2 + (is_transposed(*desc.node) ? 1 : 0);
}

void prepack(const OpDesc& desc, int input, void* packed) {
  const Sizes s = sizes_of(desc);
  const float* from = desc.constant(input)->as<float>();
  auto* to = static_cast<float*>(packed);
  const bool transposed = is_transposed(*desc.node);
  for (std::int64_t c = 0; c < s.groups * s.channels; ++c) {
    for (std::int64_t k = 0; k < s.taps; ++k) {
      for (std::int64_t m = 0; m < s.padded; ++m) {
        const std::int64_t row = transposed ? c * s.outputs + m : (c / s.channels * s.outputs + m) * s.channels + c % s.channels;
        *to++ = m < s.outputs ? from[row * s.taps + k] : 0.0f;
      }
    }
  }
}

void plan_convolution(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[kX].shape;
  const Shape& w = desc.inputs[kW].shape;
  const Sizes s = sizes_of(desc);
  const bool transposed = is_transposed(*desc.node);
  const Window window = transposed ? conv_transpose_window(*desc.node, x, w) : conv_window(*desc.node, x, w);
  ConvolutionState& state = plan->state<ConvolutionState>();
  set_axes(window, state.p.axis);
  for (const WindowAxis& a : window.axis) {  // positions, which are counted from the beginning of the pad
    to_int(checked_add(checked_add(a.pad_begin, std::max(a.input, a.output)), checked_add(a.pad_end, a.extent())));
  }
  state.p.channels = to_int(s.channels);
  state.p.outputs = to_int(s.outputs);
  state.p.groups = to_int(s.groups);
  state.p.padded = to_int(s.padded);
  state.p.transposed = transposed;
  state.p.has_bias = desc.has_input(kB);
  state.pixels = window.output_elements();
  state.taps = s.taps;
  state.images = x[0];
  if (desc.constant(kW) == nullptr) plan->scratch_bytes = packed_bytes(s);
  plan->flops =
      2.0 * static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(s.channels) * static_cast<double>(s.taps);
  count_bytes(desc, plan);
}

void run_convolution(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ConvolutionState& s = args.plan->state<ConvolutionState>();
  const Convolution& p = s.p;
  Launcher& cl = launcher(args);
  const bool packs = args.packed[kW].memory == nullptr;
  if (packs) cl.run(kPack, {p.padded, s.taps, std::int64_t{p.groups} * p.channels}, args.inputs[kW], args.scratch, p, s.taps);
  const std::int64_t chunk = cl.is_cpu() ? 64 : 1;
  const Grid grid{ceil_div(std::int64_t{p.outputs}, std::int64_t{cl.lanes()}) * p.groups, ceil_div(s.pixels, chunk), s.images};
  cl.run(kConvolve, grid, args.inputs[kX], packs ? args.scratch : args.packed[kW], args.inputs[p.has_bias != 0 ? kB : kX],
         args.outputs[0], p, s.pixels, chunk, args.desc->node->epilogue);
}

// ---- pools ----

// Numbers as window.cl has them.
enum : std::int32_t { kMaximum, kAverage, kNorm };
struct Pool {
  Axis axis[kMaxSpatial];
  std::int32_t kind, include_pad, column_major, has_indices;
  float p;
  std::int32_t padding;
};

struct PoolState {
  Pool p;
  std::int64_t pixels, planes;
};

Refusal supports_pool(const OpDesc& desc) {
  if (!is_float(desc.inputs[0]) || !is_float(desc.outputs[0])) return "only float32";
  return desc.inputs[0].shape.rank() < 3 ? "no spatial axes" : nullptr;
}

template <std::int32_t kKind>
void plan_pool(const OpDesc& desc, KernelPlan* plan) {
  constexpr int kFourth = 4;  // storage_order, count_include_pad, or p
  const Shape& x = desc.inputs[0].shape;
  const Window window = pool_window(*desc.node, x);
  const std::int64_t fourth = attr_given(*desc.node, kFourth) ? attr_int(*desc.node, kFourth) : 0;
  PoolState& s = plan->state<PoolState>();
  set_axes(window, s.p.axis);
  s.p.kind = kKind;
  s.p.column_major = kKind == kMaximum && fourth != 0;
  s.p.include_pad = kKind == kAverage && fourth != 0;
  s.p.p = static_cast<float>(fourth);
  s.p.has_indices = desc.outputs.size() > 1 && desc.outputs[1].dtype != DType::kUndefined;
  s.pixels = window.output_elements();
  s.planes = x.elements(0, 2);
  plan->flops = static_cast<double>(desc.outputs[0].shape.elements()) * static_cast<double>(window.kernel_elements());
  count_bytes(desc, plan);
}

void run_pool(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PoolState& s = args.plan->state<PoolState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = cl.is_cpu() ? 256 : 1;
  cl.run(kPool, {ceil_div(s.pixels, chunk), s.planes}, args.inputs[0], args.outputs[0], args.outputs[s.p.has_indices != 0 ? 1 : 0],
         s.p, s.pixels, chunk, args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "conv_window",
     .op = "Conv",
     .rank = 2,
     .supports = supports_convolution,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan_convolution,
     .run = run_convolution},
    {.name = "conv_transpose_window",
     .op = "ConvTranspose",
     .rank = 2,
     .supports = supports_convolution,
     .prepack_bytes = prepack_bytes,
     .prepack_variant = prepack_variant,
     .prepack = prepack,
     .plan = plan_convolution,
     .run = run_convolution},
    {.name = "max_pool_window",
     .op = "MaxPool",
     .rank = 2,
     .supports = supports_pool,
     .plan = plan_pool<kMaximum>,
     .run = run_pool},
    {.name = "average_pool_window",
     .op = "AveragePool",
     .rank = 2,
     .supports = supports_pool,
     .plan = plan_pool<kAverage>,
     .run = run_pool},
    {.name = "lp_pool_window", .op = "LpPool", .rank = 2, .supports = supports_pool, .plan = plan_pool<kNorm>, .run = run_pool},
};

}  // namespace

extern const KernelFamily window_opencl_kernels;
const KernelFamily window_opencl_kernels = {kKernels};

}  // namespace evn
