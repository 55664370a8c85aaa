// How a depthwise Conv, and pools channels last, are cut into tiles: strips of rows of a plane, or several small planes together.
#pragma once

#include "backends/cpu/pool/window_loops.h"
#include "backends/cpu/support.h"
#include "ops/infra/window.h"

namespace evn {

// Largest stride, and largest distance of a dilated window's first and last tap, of an axis: the scratch memory grows with them.
inline constexpr std::int64_t kMaxWindowExtent = 1 << 14;
inline constexpr std::int64_t kMaxWindowTaps = 4096;

struct WindowState {
  Isa isa;
  simd_window::Geometry geometry;
  std::int64_t channels, planes;
  std::int64_t strip_rows, strips;  // of a plane
  std::int64_t planes_per_tile;     // 1 where a plane has several strips
  bool last;                        // channels last: a strip has rows of all channels
};

// Fills plan->state<WindowState>(), tiles, scratch and costs for a node whose input 0 and output 0 are [N, C, spatial...].
void plan_window(const OpDesc& d, const Window& window, KernelPlan* plan);

// Plans as plan_window does, for values that lie channels last (pool/window_nhwc_loops.h): strips of an image.
void plan_window_nhwc(const OpDesc& d, const Window& window, KernelPlan* plan);

// Calls f(strip, plane) for each strip of the tiles; f sets what is its own and runs a loop on it.
template <typename F>
void for_each_strip(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, F&& f) {
  const auto& s = args.plan->state<WindowState>();
  const simd_window::Geometry& g = s.geometry;
  CancelPoints points = points_of(cancel);
  simd_window::loops(s.isa).prepare(g, static_cast<float*>(args.thread_scratch), &points);
  if (points.stopped) return;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index / s.strips * s.planes_per_tile;
    const std::int64_t last = first + s.planes_per_tile < s.planes ? first + s.planes_per_tile : s.planes;
    simd_window::Strip strip{};
    strip.geometry = &g;
    strip.row_begin = index % s.strips * s.strip_rows;
    strip.row_end = strip.row_begin + s.strip_rows < g.out_height ? strip.row_begin + s.strip_rows : g.out_height;
    strip.epilogue = epilogue_of(*args.desc);
    strip.buffer = static_cast<float*>(args.thread_scratch);
    strip.points = &points;
    for (std::int64_t plane = first; plane < last && !points.stopped; ++plane) {
      strip.plane = args.in<float>(0) + plane * g.height * g.width;
      strip.out = args.out<float>() + (plane * g.out_height + strip.row_begin) * g.out_width;
      f(strip, plane);
    }
  }
}

}  // namespace evn
