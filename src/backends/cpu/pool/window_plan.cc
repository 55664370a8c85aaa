#include "backends/cpu/pool/window_plan.h"

#include <algorithm>

namespace evn {
namespace {

constexpr std::int64_t kBufferFloats = 6144;  // padded rows of a strip: 24 KB, to stay in L1

simd_window::Geometry geometry_of(const Window& window) {
  const WindowAxis none;
  const WindowAxis& y = window.rank == 2 ? window.axis[0] : none;
  const WindowAxis& c = window.axis[window.rank - 1];
  return {y.input,  c.input,    y.output,   c.output,    y.kernel,    c.kernel,  y.stride,
          c.stride, y.dilation, c.dilation, y.pad_begin, c.pad_begin, y.pad_end, c.pad_end};
}

}  // namespace

void plan_window_nhwc(const OpDesc& d, const Window& window, KernelPlan* plan) {
  auto& s = plan->state<WindowState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.last = true;
  s.geometry = geometry_of(window);
  s.channels = x[1];
  const double row = static_cast<double>(s.geometry.out_width) * static_cast<double>(x[1]);
  const double cost = row * static_cast<double>(s.geometry.kernel_h * s.geometry.kernel_w);
  s.strip_rows = units_per_tile(s.geometry.out_height, cost, 2 * kElementsPerTile);
  s.strips = ceil_div(s.geometry.out_height, s.strip_rows);
  plan->tiles = checked_mul(x[0], s.strips);
  plan->bytes = bytes_of(d);
}

void plan_window(const OpDesc& d, const Window& window, KernelPlan* plan) {
  auto& s = plan->state<WindowState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.last = false;
  s.geometry = geometry_of(window);
  const simd_window::Geometry& g = s.geometry;
  s.channels = x[1];
  s.planes = checked_mul(x[0], x[1]);
  const int lanes = simd_window::loops(s.isa).lanes;
  const std::int64_t row = std::max<std::int64_t>(simd_window::row_floats(g, lanes), 1);
  const std::int64_t beyond = (g.kernel_h - 1) * g.dilation_h + 1;
  const std::int64_t fit = (kBufferFloats / row - beyond) / g.stride_h + 1;
  s.strip_rows = std::clamp<std::int64_t>(fit, std::min<std::int64_t>(4, g.out_height), g.out_height);
  s.strips = ceil_div(g.out_height, s.strip_rows);
  s.strip_rows = ceil_div(g.out_height, s.strips);
  s.strips = ceil_div(g.out_height, s.strip_rows);
  s.planes_per_tile = 1;
  if (s.strips == 1) {
    // Copying and starting a row cost about as much as 32 multiply-adds for each element.
    const double cost =
        static_cast<double>(g.out_height * round_up(g.out_width, lanes)) * (static_cast<double>(g.kernel_h * g.kernel_w) + 32.0);
    s.planes_per_tile = units_per_tile(std::max<std::int64_t>(1, s.planes / kManyTiles), cost);
  }
  plan->tiles = checked_mul(ceil_div(s.planes, s.planes_per_tile), s.strips);
  plan->thread_scratch_bytes =
      static_cast<std::size_t>(checked_mul<std::int64_t>(simd_window::buffer_floats(g, lanes, s.strip_rows), sizeof(float)));
  plan->bytes = bytes_of(d);
}

}  // namespace evn
