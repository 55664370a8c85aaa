// Conv in one and two dimensions: depthwise and 1x1 with constant weights, and any other over a padded copy of the input.
#include <algorithm>

#include "backends/opencl/kernels/conv_params.h"
#include "backends/opencl/kernels/half.h"
#include "backends/opencl/kernels/tiled.h"

namespace evn {
namespace {

constexpr OpenClFunction kPad{"conv", "conv_pad"};
constexpr OpenClFunction kPack{"conv", "conv_pack"};
constexpr OpenClFunction kDirect{"conv", "conv_direct"};
constexpr OpenClFunction kDirectRows{"conv", "conv_direct_rows"};
constexpr OpenClFunction kPointwise{"conv", "conv_1x1"};
constexpr OpenClFunction kPointwiseNarrow{"conv", "conv_1x1_narrow"};
constexpr OpenClFunction kDepthwise{"depthwise", "conv_depthwise"};
constexpr OpenClFunction kDepthwise3x3{"depthwise", "conv_depthwise_3x3"};
constexpr OpenClFunction kHalfPad{"conv_half", "conv_pad"};
constexpr OpenClFunction kHalfDirect{"conv_half", "conv_direct"};
constexpr OpenClFunction kHalfDirectRows{"conv_half", "conv_direct_rows"};
constexpr OpenClFunction kHalfPointwise{"conv_half", "conv_1x1"};
constexpr OpenClFunction kHalfPointwiseNarrow{"conv_half", "conv_1x1_narrow"};

constexpr TiledFunctions kTiled = EVN_TILES("tiled", "conv", kCostOfWindows);
constexpr TiledFunctions kHalfTiled = EVN_TILES("tiled_half", "conv", kCostOfWindows);
constexpr TiledFunctions kPointTiled = EVN_TILES("tiled", "points", kCostOfMatrices);
constexpr TiledFunctions kHalfPointTiled = EVN_TILES("tiled_half", "points", kCostOfMatrices);
constexpr OpenClFunction kFewPoints{"tiled", "points_few", 64};
constexpr OpenClFunction kHalfFewPoints{"tiled_half", "points_few", 64};
constexpr std::int64_t kFewPixels = 4;  // up to these a tile would be mostly empty
constexpr OpenClFunction kDepthwisePixels{"tiled", "depthwise"};

constexpr std::int64_t kDepthwisePixelsOfItem = 2048;

enum : int { kX, kW, kB };

using Params = ConvParams;

struct State {
  Params params;
  std::int64_t images;
  std::int64_t at_once;  // images whose padded copies are in scratch memory
};

ConvAxes axes_of(const OpDesc& desc) { return conv_axes(desc, desc.inputs[kX].shape, desc.inputs[kW].shape); }

// Products of one element of the output; -1 if a dim of the weights is not known.
std::int64_t products_of(const OpDesc& desc) {
  const Shape& w = desc.inputs[kW].shape;
  std::int64_t products = 1;
  for (int i = 1; i < w.rank() && products > 0; ++i) products = w[i] < 0 ? -1 : checked_mul(products, w[i]);
  return products;
}

Refusal refuse_common(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_float(desc)) return refusal;
  constexpr std::int64_t kLongest = 1 << 16;  // the sums of window.cc round less
  if (desc.inputs[kX].shape.rank() < 3 || desc.inputs[kX].shape.rank() > 4) return "only one or two spatial axes";
  if (products_of(desc) > kLongest) return "its sums are long";
  const ConvAxes axes = axes_of(desc);
  return refuse_large_plane(axes.h, axes.w);
}

Refusal refuse_computed(const OpDesc& desc) {
  if (desc.constant(kW) == nullptr) return "weights must be constant";
  return desc.has_input(kB) && desc.constant(kB) == nullptr ? "the bias must be constant" : nullptr;
}

// Refusal of rows of the padded copy of 2^31 elements or more.
Refusal refuse_long_rows(const WindowAxis& w) {
  const bool is_long = w.output > 0 && checked_mul<std::int64_t>(w.stride, conv_phase_w(w.output, w)) > INT32_MAX;
  return is_long ? "its stride is long" : nullptr;
}

Refusal supports_direct(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  return refuse_long_rows(axes_of(desc).w);
}

Refusal supports_pointwise(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  const ConvAxes axes = axes_of(desc);
  for (const WindowAxis& axis : {axes.h, axes.w}) {
    if (axis.kernel != 1 || axis.stride != 1 || axis.pad_begin != 0 || axis.pad_end != 0) return "only kernel 1, stride 1, no pads";
  }
  return nullptr;
}

Refusal supports_depthwise(const OpDesc& desc) {
  if (const Refusal refusal = refuse_common(desc)) return refusal;
  const std::int64_t group = attr_int(*desc.node, ConvAttr::kGroup);
  if (desc.inputs[kW].shape[1] != 1 || group < 2) return "only one input channel to a group";
  constexpr std::int64_t kMostTaps = 1 << 12;  // are one chain of sums, and longer ones round more
  if (products_of(desc) > kMostTaps) return "its sums are long";
  return nullptr;
}

// Halves are for weights: what is computed would be read and written once more. Depthwise ones are few, and stay float32.
template <Refusal (*kSupports)(const OpDesc&)>
Refusal supports_half(const OpDesc& desc) {
  if (desc.precision != Precision::kFloat16) return "only where fp16 is allowed";
  if (const Refusal refusal = refuse_computed(desc)) return refusal;
  return kSupports(desc);
}

// ---- packed weights: [group][block of 8 outputs][inputs and taps][8], the bias [group][block][8]; zeros fill the last block ----

struct Matrix {
  std::int64_t groups, outputs, blocks, depth;
};

Matrix matrix_of(const OpDesc& desc) {
  const Shape& w = desc.inputs[kW].shape;
  const std::int64_t groups = attr_int(*desc.node, ConvAttr::kGroup);
  const std::int64_t outputs = w[0] / groups;
  return {groups, outputs, ceil_div(outputs, kBlockRows), w.elements(1, w.rank())};
}

std::size_t packed_bytes(const OpDesc& desc, int input) {
  if (input != kW && input != kB) return 0;
  const Matrix m = matrix_of(desc);
  const std::int64_t rows = checked_mul<std::int64_t>(checked_mul(m.groups, m.blocks), kBlockRows);
  return static_cast<std::size_t>(checked_mul<std::int64_t>(checked_mul(rows, input == kW ? m.depth : 1), sizeof(float)));
}

template <typename T>
std::size_t prepack_bytes(const OpDesc& desc, int input) {
  // Blocks of the bias are those of the weights, whose dims may not be known before a run.
  if (desc.constant(input) == nullptr || desc.constant(kW) == nullptr) return 0;
  return packed_bytes(desc, input) / (input == kW ? sizeof(float) / sizeof(T) : 1);
}

std::uint64_t prepack_variant(const OpDesc& desc, int) {
  return static_cast<std::uint64_t>(attr_int(*desc.node, ConvAttr::kGroup));
}

template <typename T>
void pack_blocks(const Matrix& m, std::int64_t depth, const float* from, T* to) {
  for (std::int64_t g = 0; g < m.groups; ++g) {
    for (std::int64_t first = 0; first < m.outputs; first += kBlockRows) {
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t r = first; r < first + kBlockRows; ++r) {
          *to++ = rounded_to<T>(r < m.outputs ? from[(g * m.outputs + r) * depth + k] : 0.0f);
        }
      }
    }
  }
}

// Weights of type T; the bias is float32.
template <typename T>
void prepack(const OpDesc& desc, int input, void* packed) {
  const Matrix m = matrix_of(desc);
  const float* from = desc.constant(input)->as<float>();
  if (input == kW) {
    pack_blocks(m, m.depth, from, static_cast<T*>(packed));
  } else {
    pack_blocks(m, 1, from, static_cast<float*>(packed));
  }
}

// ---- plans ----

Params params_of(const OpDesc& desc, const ConvAxes& axes) {
  const Matrix m = matrix_of(desc);
  Params p{};
  p.channels = to_int(desc.inputs[kW].shape[1]);
  p.outputs = to_int(m.outputs);
  p.groups = to_int(m.groups);
  p.blocks = to_int(m.blocks);
  p.in_h = to_int(axes.h.input), p.in_w = to_int(axes.w.input);
  p.out_h = to_int(axes.h.output), p.out_w = to_int(axes.w.output);
  p.kernel_h = to_int(axes.h.kernel), p.kernel_w = to_int(axes.w.kernel);
  p.stride_h = to_int(axes.h.stride), p.stride_w = to_int(axes.w.stride);
  p.dilation_h = to_int(axes.h.dilation), p.dilation_w = to_int(axes.w.dilation);
  p.pad_h = to_int(axes.h.pad_begin), p.pad_w = to_int(axes.w.pad_begin);
  p.has_bias = desc.has_input(kB);
  return p;
}

State& plan_common(const OpDesc& desc, const ConvAxes& axes, KernelPlan* plan) {
  fail_if(refuse_large_plane(axes.h, axes.w));
  State& state = plan->state<State>();
  state.params = params_of(desc, axes);
  state.images = desc.inputs[kX].shape[0];
  const double taps = static_cast<double>(desc.inputs[kW].shape.elements()) / static_cast<double>(desc.inputs[kW].shape[0]);
  plan->flops = 2.0 * taps * static_cast<double>(desc.outputs[0].shape.elements());
  count_bytes(desc, plan);
  return state;
}

// What is computed is packed in each run, behind what else is in scratch memory.
void plan_packing(const OpDesc& desc, KernelPlan* plan) {
  for (const int input : {kW, kB}) {
    if (desc.has_input(input) && (desc.constant(input) == nullptr || desc.constant(kW) == nullptr)) {
      plan->scratch_bytes = checked_add(align_up(plan->scratch_bytes, 128), packed_bytes(desc, input));
    }
  }
}

template <typename T>
void plan_direct(const OpDesc& desc, KernelPlan* plan) {
  const ConvAxes axes = axes_of(desc);
  Params& p = plan_common(desc, axes, plan).params;
  fail_if(refuse_long_rows(axes.w));
  p.padded_h = to_int((axes.h.output - 1) * axes.h.stride + axes.h.extent());
  p.phase_w = conv_phase_w(axes.w.output, axes.w);
  p.pixels_first = has_pixels_first(p, checked_mul(std::int64_t{p.padded_h}, std::int64_t{p.stride_w} * p.phase_w));
  State& state = plan->state<State>();
  const auto padded = checked_mul(static_cast<std::size_t>(p.padded_elements()), sizeof(T));
  state.at_once = images_at_once(state.images, static_cast<std::int64_t>(padded));
  plan->scratch_bytes = checked_mul(padded, static_cast<std::size_t>(state.at_once));
  plan_packing(desc, plan);
}

void plan_pointwise(const OpDesc& desc, KernelPlan* plan) {
  const ConvAxes axes = axes_of(desc);
  Params& p = plan_common(desc, axes, plan).params;
  p.in_w = p.out_w = to_int(checked_mul(axes.h.input, axes.w.input));
  p.pixels_first = has_pixels_first(p, p.in_w);
  plan_packing(desc, plan);
}

void plan_depthwise(const OpDesc& desc, KernelPlan* plan) {
  const ConvAxes axes = axes_of(desc);
  const std::int64_t chunks =
      std::max<std::int64_t>(1, ceil_div(checked_mul(axes.h.output, axes.w.output), kDepthwisePixelsOfItem));
  plan_common(desc, axes, plan).params.row_chunk = to_int(std::max<std::int64_t>(1, ceil_div(axes.h.output, chunks)));
}

// ---- runs ----

// Packs a computed input to scratch, from *used on.
Buffer pack_now(const KernelArgs& args, int input, std::size_t* used) {
  const OpDesc& desc = *args.desc;
  const Matrix m = matrix_of(desc);
  Buffer to = args.scratch;
  *used = align_up(*used, 128);
  to.offset += *used;
  *used += packed_bytes(desc, input);
  if (*used > args.scratch.size) fail(EVN_ERROR_UNSUPPORTED, "weights that became constant after the model was loaded");
  const std::int64_t depth = input == kW ? m.depth : 1;
  launcher(args).run(kPack, {depth, m.blocks, m.groups}, args.inputs[static_cast<std::size_t>(input)], to, m.outputs, m.blocks,
                     depth);
  return to;
}

bool is_packed(const KernelArgs& args, std::size_t input) {
  return args.packed.size() > input && args.packed[input].memory != nullptr;
}

// Weights and bias in blocks, as they are packed or are now, from *used of scratch memory on. Without a bias: twice the weights.
struct Packed {
  Buffer weights, bias;
};
Packed packed_of(const KernelArgs& args, bool has_bias, std::size_t* used) {
  Packed p;
  p.weights = is_packed(args, kW) ? args.packed[kW] : pack_now(args, kW, used);
  p.bias = !has_bias ? p.weights : is_packed(args, kB) ? args.packed[kB] : pack_now(args, kB, used);
  return p;
}

void run_tiles(Launcher& cl, const TiledFunctions& tiled, const KernelArgs& args, const State& state, const Buffer& weights,
               const Buffer& bias) {
  const Params& params = state.params;
  const Product p = conv_product(params);
  run_tiled(cl, tiled, p.m, p.n, p.k, checked_mul<std::int64_t>(state.images, params.groups), args.inputs[kX], weights, bias,
            args.outputs[0], p, params, args.desc->node->epilogue);
}

template <typename T>
void run_direct(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& state = args.plan->state<State>();
  const Params& p = state.params;
  Launcher& cl = launcher(args);
  const std::int64_t in_channels = std::int64_t{p.channels} * p.groups;
  const std::int64_t in_image = in_channels * p.in_h * p.in_w;
  const std::int64_t out_image = std::int64_t{p.outputs} * p.groups * p.out_h * p.out_w;
  std::size_t used = static_cast<std::size_t>(p.padded_elements() * state.at_once) * sizeof(T);
  const auto [weights, bias] = packed_of(args, p.has_bias != 0, &used);
  if (!cl.is_cpu()) return run_tiles(cl, kIsHalf<T> ? kHalfTiled : kTiled, args, state, weights, bias);
  for (std::int64_t i = 0; i < state.images; i += state.at_once) {
    const std::int64_t images = std::min(state.at_once, state.images - i);
    const DirectConv direct =
        direct_conv(cl, p, images, kIsHalf<T> ? kHalfDirect : kDirect, kIsHalf<T> ? kHalfDirectRows : kDirectRows);
    cl.run(kIsHalf<T> ? kHalfPad : kPad, {p.padded_h, in_channels * images}, from_element(args.inputs[kX], i, in_image),
           args.scratch, p);
    cl.run(direct.function, direct.grid, args.scratch, weights, bias, from_element(args.outputs[0], i, out_image), p,
           args.desc->node->epilogue);
  }
}

template <typename T>
void run_pointwise(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& state = args.plan->state<State>();
  const Params& p = state.params;
  Launcher& cl = launcher(args);
  std::size_t used = 0;
  const auto [weights, bias] = packed_of(args, p.has_bias != 0, &used);
  if (!cl.is_cpu()) {
    State plane = state;
    plane.params.in_h = plane.params.out_h = 1;
    if (p.out_w <= kFewPixels) {
      const OpenClFunction& few = kIsHalf<T> ? kHalfFewPoints : kFewPoints;
      const Grid grid{checked_mul<std::int64_t>(p.blocks, static_cast<std::int64_t>(few.group)),
                      checked_mul<std::int64_t>(state.images, p.groups)};
      return cl.run(few, grid, args.inputs[kX], weights, bias, args.outputs[0], conv_product(plane.params), plane.params,
                    args.desc->node->epilogue);
    }
    return run_tiles(cl, kIsHalf<T> ? kHalfPointTiled : kPointTiled, args, plane, weights, bias);
  }
  const std::int64_t blocks = std::int64_t{p.groups} * p.blocks;
  const bool narrow = p.in_w < cl.lanes();
  const int columns = p.in_w < cl.tile_columns() ? cl.lanes() : cl.tile_columns();
  const std::int64_t tiles = ceil_div(p.in_w, columns);
  const Grid grid = narrow           ? Grid{blocks, p.in_w, state.images}
                    : p.pixels_first ? Grid{tiles, blocks, state.images}
                                     : Grid{blocks, tiles, state.images};
  const OpenClFunction& wide = kIsHalf<T> ? kHalfPointwise : kPointwise;
  const OpenClFunction& few = kIsHalf<T> ? kHalfPointwiseNarrow : kPointwiseNarrow;
  cl.run(narrow ? few : wide, grid, args.inputs[kX], weights, bias, args.outputs[0], p, args.desc->node->epilogue);
}

void run_depthwise(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& state = args.plan->state<State>();
  const Params& p = state.params;
  const std::int64_t limit = args.desc->inputs[kX].shape.elements();
  const Buffer& bias = p.has_bias ? args.inputs[kB] : args.inputs[kW];
  if (Launcher& cl = launcher(args); !cl.is_cpu()) {
    cl.run(kDepthwisePixels, {std::int64_t{p.out_h} * p.out_w, std::int64_t{p.groups} * p.outputs, state.images}, args.inputs[kX],
           args.inputs[kW], bias, args.outputs[0], p, args.desc->node->epilogue);
    return;
  }
  const bool is_3x3 =
      p.kernel_h == 3 && p.kernel_w == 3 && p.dilation_h == 1 && p.dilation_w == 1 && p.stride_h == p.stride_w && p.stride_w <= 2;
  launcher(args).run(is_3x3 ? kDepthwise3x3 : kDepthwise,
                     {ceil_div(p.out_h, p.row_chunk), std::int64_t{p.groups} * p.outputs, state.images}, args.inputs[kX],
                     args.inputs[kW], bias, args.outputs[0], p, limit, args.desc->node->epilogue);
}

using Supports = Refusal (*)(const OpDesc&);
using Run = void (*)(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&);

constexpr Kernel half_row(const char* name, int rank, Supports supports, void (*plan)(const OpDesc&, KernelPlan*), Run run) {
  Kernel k{name, "Conv", "", rank, supports, prepack_bytes<Float16>, prepack_variant, prepack<Float16>, plan, run};
  k.operands = Precision::kFloat16;
  return k;
}

constexpr Kernel kKernels[] = {
    {.name = "conv_direct",
     .op = "Conv",
     .rank = 10,
     .supports = supports_direct,
     .prepack_bytes = prepack_bytes<float>,
     .prepack_variant = prepack_variant,
     .prepack = prepack<float>,
     .plan = plan_direct<float>,
     .run = run_direct<float>},
    half_row("conv_direct_half", 11, supports_half<supports_direct>, plan_direct<Float16>, run_direct<Float16>),
    {.name = "conv_1x1",
     .op = "Conv",
     .rank = 20,
     .supports = supports_pointwise,
     .prepack_bytes = prepack_bytes<float>,
     .prepack_variant = prepack_variant,
     .prepack = prepack<float>,
     .plan = plan_pointwise,
     .run = run_pointwise<float>},
    half_row("conv_1x1_half", 21, supports_half<supports_pointwise>, plan_pointwise, run_pointwise<Float16>),
    {.name = "conv_depthwise",
     .op = "Conv",
     .rank = 30,
     .supports = supports_depthwise,
     .plan = plan_depthwise,
     .run = run_depthwise},
};

}  // namespace

extern const KernelFamily conv_opencl_kernels;
const KernelFamily conv_opencl_kernels = {kKernels};

}  // namespace evn
