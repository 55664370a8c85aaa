#include "backends/cpu/conv/conv_plan.h"

#include "ops/conv.h"

namespace evn {

simd_gemm::Patches patches_of(const Window& window) {
  const WindowAxis none;
  const WindowAxis& z = window.rank == 3 ? window.axis[0] : none;
  const WindowAxis& y = window.rank >= 2 ? window.axis[window.rank - 2] : none;
  const WindowAxis& x = window.axis[window.rank - 1];
  return {y.input,     x.input,  y.kernel, x.kernel, y.stride, x.stride,   y.dilation,  x.dilation, y.pad_begin,
          x.pad_begin, x.output, z.input,  z.kernel, z.stride, z.dilation, z.pad_begin, y.output};
}

namespace {

// The vertical and the horizontal axis.
struct Axes {
  WindowAxis v, h;

  explicit Axes(const OpDesc& d) {
    const Window window = conv_window(*d.node, d.inputs[0].shape, d.inputs[1].shape);
    if (window.rank == 2) v = window.axis[0];
    h = window.axis[window.rank - 1];
  }
};

}  // namespace

simd_depthwise::Geometry depthwise_geometry(const OpDesc& d) {
  const auto [v, h] = Axes(d);
  return {v.input,  h.input,    d.inputs[0].shape[1], v.output,    h.output,    v.kernel,         h.kernel,        v.stride,
          h.stride, v.dilation, h.dilation,           v.pad_begin, h.pad_begin, d.input_pitch(0), d.output_pitch()};
}

std::int64_t depthwise_weight_step(const Shape& weight) {
  return ceil_div(weight[0], simd_depthwise::kPackedLanes) * simd_depthwise::kPackedLanes;
}

simd_few_channels::Geometry few_channels_geometry(const OpDesc& d) {
  const auto [v, h] = Axes(d);
  return {d.inputs[0].shape[1],
          v.input,
          h.input,
          d.inputs[1].shape[0],
          v.output,
          h.output,
          v.kernel,
          h.kernel,
          v.stride,
          h.stride,
          v.pad_begin,
          h.pad_begin,
          d.output_pitch()};
}

std::int64_t few_channels_line_floats(const simd_few_channels::Loops& loops, const simd_few_channels::Geometry& g) {
  return checked_mul(g.channels * g.kernel_h, simd_few_channels::line_floats(loops.columns, g));
}

}  // namespace evn
