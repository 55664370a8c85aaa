// Depthwise Conv (one filter for each channel), one or two spatial axes. A tile is some rows of some planes.
#include "backends/cpu/pool/window_plan.h"
#include "backends/cpu/support.h"
#include "ops/conv.h"

namespace evn {
namespace {

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  const Shape& w = d.inputs[1].shape;
  if (!w.is_known()) return "the weight's shape is not known";
  if (w[1] != 1 || w[0] != attr_int(*d.node, ConvAttr::kGroup)) return "only one filter for each channel";
  if (w.elements(2, w.rank()) > kMaxWindowTaps) return "the kernel is too large";
  const std::span<const std::int64_t> strides = attr_ints(*d.node, ConvAttr::kStrides),
                                      dilations = attr_ints(*d.node, ConvAttr::kDilations);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank - 2); ++i) {
    if (!strides.empty() && strides[i] > kMaxWindowExtent) return "the stride is too large";
    if (!dilations.empty() && (w[static_cast<int>(i) + 2] - 1) * dilations[i] > kMaxWindowExtent)
      return "the dilation is too large";
  }
  return nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  plan_window(d, conv_window(*d.node, d.inputs[0].shape, d.inputs[1].shape), p);
  p->flops = 2.0 * static_cast<double>(d.inputs[1].shape.elements(2, d.inputs[1].shape.rank())) *
             static_cast<double>(d.outputs[0].shape.elements());
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<WindowState>();
  const simd_window::Loops& loops = simd_window::loops(s.isa);
  const std::int64_t taps = s.geometry.kernel_h * s.geometry.kernel_w;
  for_each_strip(args, begin, end, cancel, [&](simd_window::Strip& strip, std::int64_t plane) {
    const std::int64_t channel = plane % s.channels;
    strip.weight = args.in<float>(1) + channel * taps;
    strip.bias = args.desc->has_input(2) ? args.in<float>(2)[channel] : 0.0f;
    loops.depthwise(strip);
  });
}

constexpr Kernel kKernels[] = {
    {.name = "conv_depthwise", .op = "Conv", .rank = 20, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

extern const KernelFamily conv_depthwise_kernels;
const KernelFamily conv_depthwise_kernels = {kKernels};

}  // namespace evn
