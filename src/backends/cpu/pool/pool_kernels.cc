// MaxPool without indices and AveragePool, one or two spatial axes; GlobalAveragePool and GlobalMaxPool as reductions of a plane,
// or, channels last, of the columns of an image. All in either layout.
#include "ops/pool.h"

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/pool/window_nhwc_loops.h"
#include "backends/cpu/pool/window_plan.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;  // indices are int64
  const int rank = d.inputs[0].shape.rank();
  if (rank != 3 && rank != 4) return "only one or two spatial axes";
  std::int64_t taps = 1;
  for (const std::int64_t k : attr_ints(*d.node, MaxPoolAttr::kKernelShape)) {
    if (k > kMaxWindowTaps) return "the kernel is too large";
    taps *= k;
  }
  return taps > kMaxWindowTaps ? "the kernel is too large" : nullptr;
}

void plan(const OpDesc& d, KernelPlan* p) {
  const Window window = pool_window(*d.node, d.inputs[0].shape);
  if (d.output_layout() == Layout::kChannelsLast) {
    plan_window_nhwc(d, window, p);
  } else {
    plan_window(d, window, p);
  }
  p->flops = static_cast<double>(window.kernel_elements()) * static_cast<double>(d.outputs[0].shape.elements());
}

template <typename F>
void for_each_last_strip(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel, F&& f) {
  const auto& s = args.plan->state<WindowState>();
  const simd_window::Geometry& g = s.geometry;
  CancelPoints points = points_of(cancel);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t image = index / s.strips;
    simd_window_nhwc::Strip strip{};
    strip.geometry = &g;
    strip.channels = s.channels;
    strip.pixel = args.desc->input_pitch(0);
    strip.out_pixel = args.desc->output_pitch();
    strip.image = args.in<float>(0) + image * g.height * g.width * strip.pixel;
    strip.row_begin = index % s.strips * s.strip_rows;
    strip.row_end = std::min(strip.row_begin + s.strip_rows, g.out_height);
    strip.out = args.out<float>() + (image * g.out_height + strip.row_begin) * g.out_width * strip.out_pixel;
    strip.epilogue = epilogue_of(*args.desc);
    strip.points = &points;
    f(strip);
  }
}

void run_max(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<WindowState>();
  const simd_window::Loops& loops = simd_window::loops(s.isa);
  if (s.last) return for_each_last_strip(args, begin, end, cancel, simd_window_nhwc::loops(s.isa).max);
  for_each_strip(args, begin, end, cancel, [&](simd_window::Strip& strip, std::int64_t) { loops.max(strip); });
}

void run_average(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<WindowState>();
  const simd_window::Loops& loops = simd_window::loops(s.isa);
  const bool include_pad = attr_int(*args.desc->node, AveragePoolAttr::kCountIncludePad) != 0;
  if (s.last) {
    return for_each_last_strip(args, begin, end, cancel, [&](simd_window_nhwc::Strip& strip) {
      strip.include_pad = include_pad;
      simd_window_nhwc::loops(s.isa).average(strip);
    });
  }
  for_each_strip(args, begin, end, cancel, [&](simd_window::Strip& strip, std::int64_t) {
    strip.include_pad = include_pad;
    loops.average(strip);
  });
}

struct GlobalState {
  Isa isa;
  bool last;
  std::int64_t planes, plane, per_tile;
  std::int64_t channels;
};

constexpr std::int64_t kColumns = 32;  // channels of a tile are a multiple, channels last

Refusal global_supports(const OpDesc& d) { return all_float32(d) ? nullptr : kNeedsFloat32; }

void global_plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<GlobalState>();
  const Shape& x = d.inputs[0].shape;
  s.isa = cpu_isa();
  s.planes = x.elements(0, 2);
  s.plane = x.elements(2, x.rank());
  s.per_tile = units_per_tile(s.planes, static_cast<double>(s.plane), kElementsPerTile);
  s.last = d.output_layout() == Layout::kChannelsLast;
  s.channels = x[1];
  if (s.last) s.per_tile = ceil_div(s.per_tile, kColumns) * kColumns;
  p->tiles = ceil_div(s.planes, s.per_tile);
  p->flops = static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

template <simd_rows::Reduce Op>
void global_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<GlobalState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  const std::int64_t pitch = args.desc->input_pitch(0);
  CancelPoints points = points_of(cancel);
  // A tile of small planes is small.
  const bool is_long = s.plane > (s.last ? kLongColumn : kLongLine);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = first + s.per_tile < s.planes ? first + s.per_tile : s.planes;
    if (s.last) {
      for (std::int64_t i = first; i < last;) {
        const std::int64_t c = i % s.channels;
        const std::int64_t width = std::min(last - i, s.channels - c);
        const float* const x = args.in<float>(0) + i / s.channels * s.plane * pitch + c;
        if (is_long) {
          reduce_long_columns(s.isa, Op, x, args.out<float>() + i, s.plane, pitch, width, &points);
        } else {
          loops.reduce_columns(Op, x, args.out<float>() + i, s.plane, pitch, width);
        }
        i += width;
      }
    } else {
      for (std::int64_t i = first; i < last && !points.stopped; ++i) {
        const float* const x = args.in<float>(0) + i * s.plane;
        args.out<float>()[i] = is_long ? reduce_long(s.isa, Op, x, s.plane, &points) : loops.reduce(Op, x, s.plane);
      }
    }
    simd_elementwise::loops(s.isa).chain(args.out<float>() + first, last - first, epilogue_of(*args.desc));
  }
}

constexpr Kernel kKernels[] = {
    {.name = "max_pool",
     .op = "MaxPool",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run_max,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "average_pool",
     .op = "AveragePool",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run_average,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "global_average_pool",
     .op = "GlobalAveragePool",
     .rank = 10,
     .supports = global_supports,
     .plan = global_plan,
     .run = global_run<simd_rows::Reduce::kMean>,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput>}},
    {.name = "global_max_pool",
     .op = "GlobalMaxPool",
     .rank = 10,
     .supports = global_supports,
     .plan = global_plan,
     .run = global_run<simd_rows::Reduce::kMax>,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput>}},
};

}  // namespace

extern const KernelFamily pool_kernels;
const KernelFamily pool_kernels = {kKernels};

}  // namespace evn
