// MaxPool without indices and AveragePool, one to three spatial axes; GlobalAveragePool and GlobalMaxPool as reductions of a plane,
// or, channels last, of the columns of an image. All in either layout but for pools of three axes, which are plain.
#include "ops/pool.h"

#include <limits>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/pool/pool_line_loops.h"
#include "backends/cpu/pool/window_nhwc_loops.h"
#include "backends/cpu/pool/window_plan.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kMostLines = 1 << 14;  // under one window, and taps in one of them
constexpr double kLineCost = 128;             // of a line beside its elements
constexpr std::int64_t kMostNarrowRows = 8;   // under a narrow window

bool is_last(const OpDesc& d) { return d.output_layout() == Layout::kChannelsLast; }

[[gnu::cold]] Refusal supports(const OpDesc& d) {
  if (!all_float32(d)) return kNeedsFloat32;  // indices are int64
  const int rank = d.inputs[0].shape.rank();
  if (rank < 3 || rank > 5) return "only one to three spatial axes";
  const std::span<const std::int64_t> kernel = attr_ints(*d.node, MaxPoolAttr::kKernelShape);
  const std::int64_t most = rank == 5 ? kMostLines : kMaxWindowTaps;
  std::int64_t lines = 1;
  for (std::size_t i = 0; i + 1 < kernel.size(); ++i) {
    if (kernel[i] > most) return "the kernel is too large";
    lines *= kernel[i];
  }
  if (lines > most || kernel.back() > most) return "the kernel is too large";
  const std::span<const std::int64_t> dilations = attr_ints(*d.node, MaxPoolAttr::kDilations);
  if (!dilations.empty() && (kernel.back() - 1) * dilations.back() > kMaxWindowExtent) return "the dilation is too large";
  return rank == 5 || lines * kernel.back() <= most ? nullptr : "the kernel is too large";
}

void layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  if (d.inputs[0].shape.rank() == 5) inputs[0] = Layout::kPlain;
  follow_first(d, inputs, outputs);
}

// A plain pool. A tile is some lines of the output.
struct LineState {
  Isa isa;
  Window window;
  bool include_pad;
  std::int64_t lines, per_tile;
  std::int64_t phases, length, used;  // of the joined line: simd_pool_line::Geometry
  std::int64_t pointers, divisors;    // elements of these tables in the scratch, whole vectors each
  bool is_narrow;
  simd_pool_line::Narrow narrow;
};

// The last axis of a window, that before it and that before both; of size 1 where the window has fewer.
constexpr WindowAxis kNoAxis;
const WindowAxis& line_axis(const Window& w) { return w.axis[w.rank - 1]; }
const WindowAxis& row_axis(const Window& w) { return w.rank > 1 ? w.axis[w.rank - 2] : kNoAxis; }
const WindowAxis& depth_axis(const Window& w) { return w.rank > 2 ? w.axis[w.rank - 3] : kNoAxis; }

// Whether lines can be computed several at once, by reading windows from the input.
[[gnu::cold]] void plan_narrow(const OpDesc& d, LineState* s) {
  const simd_pool_line::Loops& loops = simd_pool_line::loops(s->isa);
  const WindowAxis &a = line_axis(s->window), &row = row_axis(s->window);
  s->is_narrow = loops.narrow_max != nullptr && d.inputs[0].shape.rank() <= 4 && a.stride == 2 &&
                 (a.kernel == 2 || a.kernel == 3) && a.dilation == 1 && a.input <= kMostLines && row.kernel <= kMostNarrowRows;
  if (!s->is_narrow) return;
  const std::int64_t begin = ceil_div(a.pad_begin, std::int64_t{2}), last = a.input + a.pad_begin - a.kernel;
  const std::int64_t end = std::min(last < 0 ? 0 : last / 2 + 1, a.output);
  s->is_narrow = end - begin >= loops.lanes;
  s->narrow = {.kernel = a.kernel,
               .pad = a.pad_begin,
               .input = a.input,
               .output = a.output,
               .begin = begin,
               .end = end,
               .row_step = row.dilation * a.input,
               .line_step = row.stride * a.input};
}

[[gnu::cold]] void plan_lines(const OpDesc& d, const Window& window, KernelPlan* p) {
  auto& s = p->state<LineState>();
  s.isa = cpu_isa();
  s.window = window;
  const WindowAxis& a = line_axis(window);
  const std::int64_t lanes = simd_pool_line::loops(s.isa).lanes;
  const std::int64_t lines_under = depth_axis(window).kernel * row_axis(window).kernel;
  const std::int64_t reach = (a.output - 1) * a.stride + a.extent();  // padded positions that windows reach
  s.used = std::clamp<std::int64_t>(reach - a.pad_begin, 0, a.input);
  s.phases = a.stride <= 2 ? a.stride : std::min(a.stride, a.extent());
  s.length = ceil_div(ceil_div(a.output, lanes) * lanes + (a.extent() - 1) / a.stride + 1, lanes) * lanes;
  s.pointers = ceil_div(lines_under + a.kernel, lanes) * lanes;
  s.divisors = ceil_div(a.output, lanes) * lanes;
  s.lines = d.outputs[0].shape.elements(0, d.outputs[0].shape.rank() - 1);
  plan_narrow(d, &s);
  const double cost = static_cast<double>(lines_under) * static_cast<double>(s.used) +
                      static_cast<double>(a.kernel) * static_cast<double>(a.output) + kLineCost;
  s.per_tile = units_per_tile(s.lines, cost, 4 * kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  const std::int64_t floats = checked_add(checked_mul(s.phases, s.length), s.divisors);
  p->thread_scratch_bytes = static_cast<std::size_t>(
      checked_add(checked_mul<std::int64_t>(s.pointers, sizeof(void*)), checked_mul<std::int64_t>(floats, sizeof(float))));
  p->bytes = bytes_of(d);
}

template <bool Average>
void plan(const OpDesc& d, KernelPlan* p) {
  const Window window = pool_window(*d.node, d.inputs[0].shape);
  if (is_last(d)) {
    plan_window_nhwc(d, window, p);
  } else {
    plan_lines(d, window, p);
    p->state<LineState>().include_pad = Average && attr_int(*d.node, AveragePoolAttr::kCountIncludePad) != 0;
  }
  p->flops = static_cast<double>(window.kernel_elements()) * static_cast<double>(d.outputs[0].shape.elements());
}

// What one thread computes lines by: its part of the scratch, filled once for any number of lines.
template <bool Average>
class LinePool {
 public:
  LinePool(const KernelArgs& args, const Cancel& cancel)
      : s_(args.plan->state<LineState>()), loops_(simd_pool_line::loops(s_.isa)), points_(points_of(cancel)) {
    const WindowAxis& a = line_axis(s_.window);
    auto* const taps = static_cast<std::int64_t*>(args.thread_scratch);
    lines_ = reinterpret_cast<const float**>(taps + a.kernel);
    divisors_ = reinterpret_cast<float*>(taps + s_.pointers);
    float* const joined = divisors_ + s_.divisors;
    g_ = {a.stride, a.pad_begin, s_.used, a.kernel, taps, s_.phases, s_.length, joined};
    in_parts(&points_, a.kernel, kMostLines, kFarElement, [&](std::int64_t k, std::int64_t end) {
      for (; k < end; ++k) taps[k] = k * a.dilation % a.stride * s_.length + k * a.dilation / a.stride;
    });
    fill_by_parts(&points_, joined, s_.phases * s_.length, Average ? 0.0f : -std::numeric_limits<float>::infinity());
    if (Average) {
      fill_by_parts(&points_, divisors_, s_.divisors, 1.0f);
      in_parts(&points_, a.output, kMostLines / 4, kFarElement, [&](std::int64_t i, std::int64_t end) {
        for (; i < end; ++i) divisors_[i] = divisor(taps_of(a, i));
      });
    }
  }

  CancelPoints* points() { return &points_; }

  // The next line is this one of the output.
  void seek(std::int64_t line) {
    row_ = line % row_axis(s_.window).output;
    depth_ = line / row_axis(s_.window).output % depth_axis(s_.window).output;
    plane_ = line / row_axis(s_.window).output / depth_axis(s_.window).output;
  }

  // Where windows are narrow, computes some of the next lines, `left` at most, that have windows of the same height. Returns how
  // many: 0 where run() is to compute the next one, or the run is to stop.
  std::int64_t run_narrow(const float* input, float* y, std::int64_t left) {
    const WindowAxis &row = row_axis(s_.window), &a = line_axis(s_.window);
    const Taps in_row = taps_of(row, row_);
    if (in_row.count == 0) return 0;
    std::int64_t lines = 1;
    if (in_row.count == row.kernel) {
      const std::int64_t inside = (row.input + row.pad_begin - (row.kernel - 1) * row.dilation - 1) / row.stride + 1;
      const std::int64_t work = 2 * in_row.count * a.input + a.kernel * a.output;
      lines = std::min({left, std::min(inside, row.output) - row_, std::max<std::int64_t>(1, kTileWorkPerPoint / work)});
    }
    if (stops(&points_, lines * (2 * in_row.count * a.input + a.kernel * a.output + kFarElement))) return 0;
    const float* const x = input + plane_ * s_.window.input_elements() + in_row.first * a.input;
    if (Average) {
      loops_.narrow_average(s_.narrow, x, in_row.count, divisor(in_row), divisors_, y, lines);
    } else {
      lines = loops_.narrow_max(s_.narrow, x, in_row.count, y, lines);
    }
    row_ += lines;
    if (row_ == row.output) row_ = 0, ++plane_;
    return lines;
  }

  // Computes the next line. Returns false if the run is to stop.
  bool run(const float* input, float* y) {
    const WindowAxis &depth = depth_axis(s_.window), &row = row_axis(s_.window), &a = line_axis(s_.window);
    const Taps in_depth = taps_of(depth, depth_), in_row = taps_of(row, row_);
    const float* const plane = input + plane_ * s_.window.input_elements();
    if (++row_ == row.output) row_ = 0, ++depth_;
    if (depth_ == depth.output) depth_ = 0, ++plane_;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < in_depth.count; ++i) {
      for (std::int64_t k = 0; k < in_row.count; ++k) {
        const std::int64_t at = (in_depth.first + i * depth.dilation) * row.input + in_row.first + k * row.dilation;
        lines_[count++] = plane + at * a.input;
      }
    }
    const float scale = Average ? divisor(in_depth) * divisor(in_row) : 0;
    if (count == 0) {
      return fill_by_parts(&points_, y, a.output, Average ? 0.0f : -std::numeric_limits<float>::infinity());
    }
    bool nan = false;
    const auto join = [&](std::int64_t begin, std::int64_t end) {
      if (Average) loops_.join_sum(g_, lines_, count, begin, end);
      else nan |= loops_.join_max(g_, lines_, count, begin, end);
    };
    const auto fold = [&](std::int64_t begin, std::int64_t end) {
      if (Average) loops_.average(g_, scale, divisors_, y, begin, end);
      else loops_.max(g_, nan, y, begin, end);
    };
    const std::int64_t work = count + (a.stride > 2 ? kFarElement : 0);
    return by_parts(&points_, s_.used, 2 * loops_.lanes, work, join) &&
           by_parts(&points_, a.output, 2 * loops_.lanes, a.kernel, fold);
  }

 private:
  float divisor(const Taps& t) const { return static_cast<float>(s_.include_pad ? t.padded : t.count); }

  const LineState& s_;
  const simd_pool_line::Loops& loops_;
  CancelPoints points_;
  simd_pool_line::Geometry g_{};
  std::int64_t plane_ = 0, depth_ = 0, row_ = 0;
  const float** lines_ = nullptr;
  float* divisors_ = nullptr;
};

template <bool Average>
void run_lines(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<LineState>();
  const std::int64_t width = line_axis(s.window).output;
  const Epilogue* const epilogue = epilogue_of(*args.desc);
  LinePool<Average> pool(args, cancel);
  for (std::int64_t index = begin; index < end && !pool.points()->stopped && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile, last = std::min(first + s.per_tile, s.lines);
    pool.seek(first);
    for (std::int64_t line = first; line < last;) {
      float* const y = args.out<float>() + line * width;
      const std::int64_t lines = s.is_narrow ? pool.run_narrow(args.in<float>(0), y, last - line) : 0;
      if (lines == 0 && (pool.points()->stopped || !pool.run(args.in<float>(0), y))) return;
      line += std::max<std::int64_t>(lines, 1);
    }
    if (epilogue != nullptr) chain_long(s.isa, args.out<float>() + first * width, (last - first) * width, epilogue, pool.points());
  }
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
  if (!is_last(*args.desc)) return run_lines<false>(args, begin, end, cancel);
  for_each_last_strip(args, begin, end, cancel, simd_window_nhwc::loops(args.plan->state<WindowState>().isa).max);
}

void run_average(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  if (!is_last(*args.desc)) return run_lines<true>(args, begin, end, cancel);
  const bool include_pad = attr_int(*args.desc->node, AveragePoolAttr::kCountIncludePad) != 0;
  for_each_last_strip(args, begin, end, cancel, [&](simd_window_nhwc::Strip& strip) {
    strip.include_pad = include_pad;
    simd_window_nhwc::loops(args.plan->state<WindowState>().isa).average(strip);
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

[[gnu::cold]] void global_plan(const OpDesc& d, KernelPlan* p) {
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
     .plan = plan<false>,
     .run = run_max,
     .layouts = layouts,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "average_pool",
     .op = "AveragePool",
     .rank = 10,
     .supports = supports,
     .plan = plan<true>,
     .run = run_average,
     .layouts = layouts,
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
