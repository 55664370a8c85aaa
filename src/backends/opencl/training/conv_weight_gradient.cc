// The derivative of Conv by its weights, in one and two dimensions, float32. conv_gradient.cl says how.
#include <algorithm>

#include "backends/opencl/kernels/conv_params.h"
#include "backends/opencl/training/support.h"

namespace evn {
namespace {

constexpr OpenClFunction kCopyInput{"conv_gradient", "copy_input"};
constexpr OpenClFunction kCopyGradient{"conv_gradient", "copy_gradient"};
constexpr OpenClFunction kGradient{"conv_gradient", "weight_gradient"};
constexpr OpenClFunction kGradientOfFew{"conv_gradient", "weight_gradient_of_few"};
constexpr OpenClFunction kSumParts{"conv_gradient", "sum_parts"};

enum : int { kW, kX, kDy };

constexpr std::int64_t kMostCopied = 4 << 20;  // bytes of copies that are made at once, at least those of one image
constexpr std::int64_t kFewOutputs = 3;        // of a group
constexpr std::int64_t kColumns = 3, kColumnsOfFew = 9;
constexpr std::int64_t kWantedTiles = 256;      // where there are fewer, the images are cut into parts
constexpr std::int64_t kMostOfParts = 1 << 20;  // floats

// The struct that conv_gradient.cl takes, laid out as there.
struct Weights {
  std::int32_t channels, outputs, groups;
  std::int32_t in_h, in_w, out_h, out_w;
  std::int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  std::int32_t phases_h, phases_w, pitch, images, parts, adds, padding;
  std::int64_t x_plane, dy_plane;

  bool has_few() const { return outputs <= kFewOutputs; }
  std::int64_t depth() const { return checked_mul(std::int64_t{channels}, std::int64_t{kernel_h} * kernel_w); }
  std::int64_t elements() const { return checked_mul(std::int64_t{groups} * outputs, depth()); }
  std::int64_t columns() const { return ceil_div(depth(), has_few() ? kColumnsOfFew : kColumns); }
  // Blocks of `rows` outputs, of all groups.
  std::int64_t blocks(std::int64_t rows) const { return ceil_div(std::int64_t{outputs}, has_few() ? 1 : rows) * groups; }
  std::int64_t x_floats() const {  // of an image
    return checked_mul(checked_mul(std::int64_t{channels} * groups, std::int64_t{phases_h} * phases_w), x_plane);
  }
  std::int64_t dy_floats() const { return checked_mul(std::int64_t{outputs} * groups, dy_plane); }
};

struct State {
  Weights weights;  // `images`: those that are copied at once
  std::int64_t images;
};

Refusal supports(const OpDesc& desc) {
  if (const Refusal refusal = refuse_unless_plain(desc)) return refusal;
  const int rank = desc.inputs[kX].shape.rank();
  return rank == 3 || rank == 4 ? nullptr : "only one or two spatial axes";
}

Weights weights_of(const OpDesc& desc, const ConvAxes& axes) {
  const Shape& w = desc.inputs[kW].shape;
  Weights p{};
  p.groups = to_int(attr_int(*desc.node, ConvAttr::kGroup));
  p.channels = to_int(w[1]);
  p.outputs = to_int(w[0] / p.groups);
  p.in_h = to_int(axes.h.input), p.in_w = to_int(axes.w.input);
  p.out_h = to_int(axes.h.output), p.out_w = to_int(axes.w.output);
  p.kernel_h = to_int(axes.h.kernel), p.kernel_w = to_int(axes.w.kernel);
  p.stride_h = to_int(axes.h.stride), p.stride_w = to_int(axes.w.stride);
  p.dilation_h = to_int(axes.h.dilation), p.dilation_w = to_int(axes.w.dilation);
  p.pad_h = to_int(axes.h.pad_begin), p.pad_w = to_int(axes.w.pad_begin);
  p.phases_h = to_int(std::min(axes.h.stride, axes.h.extent()));
  p.phases_w = to_int(std::min(axes.w.stride, axes.w.extent()));
  const std::int64_t reach_h = (axes.h.extent() - 1) / axes.h.stride, reach_w = (axes.w.extent() - 1) / axes.w.stride;
  p.pitch = to_int(axes.w.output + reach_w);
  p.dy_plane = align_up(checked_mul(axes.h.output, std::int64_t{p.pitch}), kMostLanes);
  p.x_plane = align_up(checked_add(p.dy_plane, checked_add(checked_mul(reach_h, std::int64_t{p.pitch}), reach_w)), kMostLanes);
  return p;
}

// Scratch memory: copies of x, of dy, then parts of the sums.
std::size_t copies_bytes(const Weights& p, std::int64_t floats) {
  return checked_mul(static_cast<std::size_t>(checked_mul(floats, std::int64_t{p.images})), sizeof(float));
}
std::size_t parts_bytes(const Weights& p) {
  return p.parts == 1 ? 0 : static_cast<std::size_t>(checked_mul(p.elements(), std::int64_t{p.parts})) * sizeof(float);
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape &x = desc.inputs[kX].shape, &w = desc.inputs[kW].shape;
  State& s = plan->state<State>();
  Weights& p = s.weights;
  p = weights_of(desc, conv_axes(desc, x, w));
  s.images = x[0];
  const std::int64_t bytes = checked_mul<std::int64_t>(checked_add(p.x_floats(), p.dy_floats()), sizeof(float));
  p.images = to_int(std::clamp<std::int64_t>(kMostCopied / bytes, 1, s.images));
  const std::int64_t tiles = checked_mul(p.columns(), p.blocks(kBlockRows));
  const std::int64_t most = std::min<std::int64_t>(p.images, kMostOfParts / p.elements());
  p.parts = to_int(std::clamp<std::int64_t>(kWantedTiles / tiles, 1, std::max<std::int64_t>(most, 1)));
  plan->scratch_bytes = checked_add(checked_add(copies_bytes(p, p.x_floats()), copies_bytes(p, p.dy_floats())), parts_bytes(p));
  plan->flops = 2.0 * static_cast<double>(p.depth()) * static_cast<double>(desc.inputs[kDy].shape.elements());
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Weights p = s.weights;
  Launcher& cl = launcher(args);
  const std::size_t x_bytes = copies_bytes(p, p.x_floats()), dy_bytes = copies_bytes(p, p.dy_floats());
  const Buffer x_copy = part_of(args.scratch, 0, x_bytes), dy_copy = part_of(args.scratch, x_bytes, dy_bytes);
  const Buffer to = p.parts == 1 ? args.outputs[0] : part_of(args.scratch, x_bytes + dy_bytes, parts_bytes(p));
  const std::int64_t channels = std::int64_t{p.channels} * p.groups, outputs = std::int64_t{p.outputs} * p.groups;
  const std::int64_t rows = cl.lanes() == 16 ? 8 : 4;  // as conv_gradient.cl has them
  for (std::int64_t i = 0; i < s.images; i += s.weights.images) {
    p.images = static_cast<std::int32_t>(std::min<std::int64_t>(s.weights.images, s.images - i));
    p.adds = i > 0;
    const std::int64_t groups = checked_mul<std::int64_t>(p.images, cl.group_items());
    cl.run(kCopyInput, {groups, channels * p.phases_h * p.phases_w}, from_element(args.inputs[kX], i, channels * p.in_h * p.in_w),
           x_copy, p);
    cl.run(kCopyGradient, {groups, outputs}, from_element(args.inputs[kDy], i, outputs * p.out_h * p.out_w), dy_copy, p);
    cl.run(p.has_few() ? kGradientOfFew : kGradient, {checked_mul(p.columns(), cl.group_items()), p.blocks(rows), p.parts}, x_copy,
           dy_copy, to, p);
  }
  if (p.parts == 1) return;
  const std::int64_t chunk = chunk_elements(cl, p.elements());
  cl.run(kSumParts, {ceil_div(p.elements(), chunk)}, to, args.outputs[0], p.elements(), std::int64_t{p.parts}, chunk);
}

constexpr Kernel kKernels[] = {{.name = "conv_weight_gradient",
                                .op = kConvWeightGradient,
                                .domain = kInternalDomain,
                                .rank = 10,
                                .supports = supports,
                                .plan = plan,
                                .run = run}};

}  // namespace

extern const KernelFamily conv_weight_gradient_opencl_kernels;
const KernelFamily conv_weight_gradient_opencl_kernels = {kKernels};

}  // namespace evn
