// The derivative of Conv by its input, in one and two dimensions, float32: a convolution of dy, which conv.cl and tiled.cl make.
#include <algorithm>

#include "backends/opencl/kernels/conv_params.h"
#include "backends/opencl/kernels/tiled.h"
#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kStretch{"conv_gradient", "stretch"};
constexpr OpenClFunction kPackTurned{"conv_gradient", "pack_turned"};
constexpr OpenClFunction kDepthwise{"conv_gradient", "depthwise_input_gradient"};
constexpr OpenClFunction kDirect{"conv", "conv_direct"};
constexpr OpenClFunction kDirectRows{"conv", "conv_direct_rows"};
constexpr OpenClFunction kPointwise{"conv", "conv_1x1"};
constexpr OpenClFunction kPointwiseNarrow{"conv", "conv_1x1_narrow"};
constexpr TiledFunctions kTiled = EVN_TILES("tiled", "conv", kCostOfWindows);
constexpr TiledFunctions kPointTiled = EVN_TILES("tiled", "points", kCostOfMatrices);

enum : int { kX, kW, kDy };

struct State {
  ConvParams params;  // of the convolution that makes dx: its channels are those of dy
  std::int32_t stretch_h, stretch_w;
  std::int64_t images, at_once;
  bool pointwise, depthwise;
};

Refusal supports(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_plain(desc)) return refusal;
  const int rank = desc.inputs[kX].shape.rank();
  return rank == 3 || rank == 4 ? nullptr : "only one or two spatial axes";
}

bool is_point(const WindowAxis& a) { return a.kernel == 1 && a.stride == 1 && a.pad_begin == 0 && a.pad_end == 0; }

ConvParams params_of(const OpDesc& desc, const ConvAxes& axes) {
  fail_if(refuse_large_plane(axes.h, axes.w));
  const Shape& w = desc.inputs[kW].shape;
  ConvParams p{};
  p.groups = to_int(attr_int(*desc.node, ConvAttr::kGroup));
  p.channels = to_int(w[0] / p.groups);
  p.outputs = to_int(w[1]);
  p.blocks = to_int(ceil_div(w[1], std::int64_t{kBlockRows}));
  p.in_h = to_int(axes.h.output), p.in_w = to_int(axes.w.output);
  p.out_h = to_int(axes.h.input), p.out_w = to_int(axes.w.input);
  p.kernel_h = to_int(axes.h.kernel), p.kernel_w = to_int(axes.w.kernel);
  p.stride_h = p.stride_w = 1;
  p.dilation_h = to_int(axes.h.dilation), p.dilation_w = to_int(axes.w.dilation);
  to_int(checked_mul(axes.h.kernel, axes.w.kernel));  // the taps
  // May be negative: then the first rows and columns of what is stretched are not wanted.
  p.pad_h = static_cast<std::int32_t>(axes.h.extent() - 1 - axes.h.pad_begin);
  p.pad_w = static_cast<std::int32_t>(axes.w.extent() - 1 - axes.w.pad_begin);
  p.padded_h = to_int(axes.h.input + axes.h.extent() - 1);
  WindowAxis w_axis = axes.w;
  w_axis.stride = 1;
  p.phase_w = conv_phase_w(axes.w.input, w_axis);
  to_int(checked_mul<std::int64_t>(p.padded_h, p.phase_w));
  return p;
}

// Scratch memory: the stretched images, then the packed weights.
std::size_t stretched_bytes(const State& s) {
  if (s.pointwise) return 0;
  return align_up(static_cast<std::size_t>(checked_mul(s.params.padded_elements(), s.at_once)) * sizeof(float), 128);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape &x = desc.inputs[kX].shape, &w = desc.inputs[kW].shape;
  const ConvAxes axes = conv_axes(desc, x, w);
  State& s = plan->state<State>();
  ConvParams& p = s.params;
  p = params_of(desc, axes);
  s.stretch_h = to_int(axes.h.stride), s.stretch_w = to_int(axes.w.stride);
  s.images = x[0];
  s.pointwise = is_point(axes.h) && is_point(axes.w);
  s.depthwise = !s.pointwise && p.outputs == 1;
  if (s.pointwise) {
    p.in_w = p.out_w = to_int(checked_mul(axes.h.input, axes.w.input));
    p.in_h = p.out_h = 1;
    p.pixels_first = has_pixels_first(p, p.in_w);
  } else {
    p.pixels_first = has_pixels_first(p, checked_mul(std::int64_t{p.padded_h}, std::int64_t{p.phase_w}));
    s.at_once = images_at_once(s.images, checked_mul<std::int64_t>(p.padded_elements(), sizeof(float)));
  }
  const std::int64_t packed = s.depthwise ? 0 : p.packed_floats();
  plan->scratch_bytes = checked_add(stretched_bytes(s), static_cast<std::size_t>(checked_mul<std::int64_t>(packed, sizeof(float))));
  plan->flops = 2.0 * static_cast<double>(w.elements(1, w.rank())) * static_cast<double>(desc.inputs[kDy].shape.elements());
  count_bytes(desc, plan);
}

// The tiles that should be fastest, for a GPU.
template <typename... Args>
void run_tiles(Launcher& cl, const TiledFunctions& tiled, const Product& p, std::int64_t products, const Args&... args) {
  const Tile& t = tiled.tiles[choose_tile(tiled, p.m, p.n, p.k, products, cl.compute_units(), cl.local_bytes())];
  const std::int64_t groups = checked_mul(ceil_div(p.m, t.rows), ceil_div(p.n, t.columns));
  cl.run(t.function, {checked_mul(groups, static_cast<std::int64_t>(t.function.group)), products}, args..., chain_of(p.k));
}

void run_pointwise(const KernelArgs& args, const State& s, const Buffer& weights) {
  const ConvParams& p = s.params;
  Launcher& cl = launcher(args);
  const Buffer &dy = args.inputs[kDy], &dx = args.outputs[0];
  const Product product = conv_product(p);
  if (!cl.is_cpu())
    return run_tiles(cl, kPointTiled, product, checked_mul<std::int64_t>(s.images, p.groups), dy, weights, weights, dx, product, p,
                     Epilogue{});
  const std::int64_t blocks = std::int64_t{p.groups} * p.blocks;
  const std::int64_t columns = p.in_w < cl.tile_columns() ? cl.lanes() : cl.tile_columns(), tiles = ceil_div(p.in_w, columns);
  if (p.in_w < cl.lanes()) return cl.run(kPointwiseNarrow, {blocks, p.in_w, s.images}, dy, weights, weights, dx, p, Epilogue{});
  const Grid grid = p.pixels_first != 0 ? Grid{tiles, blocks, s.images} : Grid{blocks, tiles, s.images};
  cl.run(kPointwise, grid, dy, weights, weights, dx, p, Epilogue{});
}

// Some images, whose dy lies stretched in scratch memory.
void run_images(const KernelArgs& args, const State& s, std::int64_t images, const Buffer& weights, const Buffer& dx) {
  const ConvParams& p = s.params;
  Launcher& cl = launcher(args);
  if (s.depthwise) return cl.run(kDepthwise, {p.out_h, p.groups, images}, args.scratch, args.inputs[kW], dx, p);
  if (cl.is_cpu()) {
    const DirectConv direct = direct_conv(cl, p, images, kDirect, kDirectRows);
    return cl.run(direct.function, direct.grid, args.scratch, weights, weights, dx, p, Epilogue{});
  }
  ConvParams stretched = p;  // all of it is input
  stretched.in_h = p.padded_h, stretched.in_w = p.phase_w;
  stretched.pad_h = stretched.pad_w = 0;
  const Product product = conv_product(p);
  run_tiles(cl, kTiled, product, checked_mul<std::int64_t>(images, p.groups), args.scratch, weights, weights, dx, product,
            stretched, Epilogue{});
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  const ConvParams& p = s.params;
  Launcher& cl = launcher(args);
  const std::size_t stretched = stretched_bytes(s);
  const Buffer weights = s.depthwise ? args.scratch : part_of(args.scratch, stretched, args.scratch.size - stretched);
  if (!s.depthwise) cl.run(kPackTurned, {p.depth(), p.blocks, p.groups}, args.inputs[kW], weights, p);
  if (s.pointwise) return run_pointwise(args, s, weights);
  const std::int64_t channels = std::int64_t{p.channels} * p.groups;
  const std::int64_t dy_image = channels * p.in_h * p.in_w, dx_image = std::int64_t{p.outputs} * p.groups * p.out_plane();
  for (std::int64_t i = 0; i < s.images; i += s.at_once) {
    const std::int64_t images = std::min(s.at_once, s.images - i);
    cl.run(kStretch, {p.padded_h, channels * images}, from_element(args.inputs[kDy], i, dy_image), args.scratch, s.stretch_h,
           s.stretch_w, p);
    run_images(args, s, images, weights, from_element(args.outputs[0], i, dx_image));
  }
}

constexpr Kernel kKernels[] = {{.name = "conv_input_gradient",
                                .op = kConvInputGradient,
                                .domain = kInternalDomain,
                                .rank = 10,
                                .supports = supports,
                                .plan = plan,
                                .run = run}};

}  // namespace

extern const KernelFamily conv_input_gradient_opencl_kernels;
const KernelFamily conv_input_gradient_opencl_kernels = {kKernels};

}  // namespace evn
