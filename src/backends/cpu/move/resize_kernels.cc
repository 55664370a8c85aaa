// Resize and Upsample of float32: nearest, also of bytes, and linear where only the last two axes change; in either layout.
// Coordinates come from ops/resize.h. A tile is some lines of the output.
#include "ops/resize.h"

#include <algorithm>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/move/transpose_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

// A line is a run of the last axis; channels last, of the last spatial axis with all channels.
struct ResizeState {
  Isa isa;
  bool last;
  std::int64_t lines, width, per_tile;
  std::int64_t rows;  // positions of the axis before that of the columns, 0 where it is that of the channels
};

// Position of each column: for nearest the input column, for linear also its neighbour and weight.
struct Column {
  std::int32_t low, high;
  float weight;
};

constexpr std::int64_t kColumnsPerPoint = 1 << 12;

std::string mode_of(const Node& n) { return attr_string(n, ResizeAttr::kMode); }

[[gnu::cold]] Refusal supports(const OpDesc& d) {
  const Node& n = *d.node;
  const bool is_byte = d.inputs[0].dtype == DType::kInt8 || d.inputs[0].dtype == DType::kUint8;
  const bool moves = is_byte && mode_of(n) == "nearest" && n.epilogue.empty();
  if (d.inputs[0].dtype != DType::kFloat32 && !moves) return "only float32, or bytes to the nearest";
  if (mode_of(n) != "nearest" && mode_of(n) != "linear") return "only nearest and linear";
  const bool old = n.op_type == "Upsample" || n.op->since < 11;
  if (!old && attr_string(n, ResizeAttr::kCoordinateTransformationMode) == "tf_crop_and_resize") return "tf_crop_and_resize";
  if (!old && attr_given(n, ResizeAttr::kAntialias) && attr_int(n, ResizeAttr::kAntialias) != 0) return "antialias";
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  if (x.rank() < 2 || y.rank() != x.rank()) return "fewer than two axes";
  if (mode_of(n) == "nearest") return nullptr;
  if (old && n.op->since < 9) return "the scales are an attribute";
  // These make scales or sizes speak of other axes, or change others than they name.
  if (!old && attr_given(n, ResizeAttr::kAxes)) return "linear only without axes";
  const bool has_policy = !old && attr_given(n, ResizeAttr::kKeepAspectRatioPolicy);
  if (has_policy && attr_string(n, ResizeAttr::kKeepAspectRatioPolicy) != "stretch") return "linear only with stretch";
  // The axes before the last two must stand still: constant scales of 1, or constant sizes of known dims.
  const int index = old ? 1 : d.constant(2) != nullptr && d.constant(2)->desc.shape.elements() > 0 ? 2 : 3;
  const Weight* w = d.constant(index);
  if (w == nullptr || w->desc.shape.elements() != x.rank()) return "the scales are not constant";
  for (int i = 0; i < x.rank() - 2; ++i) {
    if (w->desc.dtype == DType::kFloat32) {
      float scale;
      std::memcpy(&scale, w->as<char>() + static_cast<std::size_t>(i) * sizeof scale, sizeof scale);
      if (scale != 1.0f) return "linear only over the last two axes";
    } else {
      std::int64_t size;
      std::memcpy(&size, w->as<char>() + static_cast<std::size_t>(i) * sizeof size, sizeof size);
      if (size != x[i]) return "linear only over the last two axes";
    }
  }
  return nullptr;
}

// Linear, the last two axes must be spatial ones.
void layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  if (d.inputs[0].shape.rank() < 4 && mode_of(*d.node) != "nearest") inputs[0] = Layout::kPlain;
  follow_first(d, inputs, outputs);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ResizeState>();
  const Shape& y = d.outputs[0].shape;
  s.isa = cpu_isa();
  s.last = d.output_layout() == Layout::kChannelsLast;
  s.width = y[y.rank() - 1];
  s.lines = s.last ? checked_mul(y[0], y.elements(2, y.rank() - 1)) : y.elements(0, y.rank() - 1);
  const double line = static_cast<double>(s.width) * static_cast<double>(s.last ? y[1] : 1);
  s.per_tile = units_per_tile(s.lines, line, 2 * kElementsPerTile);
  p->tiles = ceil_div(s.lines, s.per_tile);
  s.rows = s.last && y.rank() == 3 ? 0 : y[y.rank() - 2];
  p->thread_scratch_bytes = static_cast<std::size_t>(checked_mul<std::int64_t>(checked_add(s.width, s.rows), sizeof(Column)));
  p->flops = 4.0 * static_cast<double>(y.elements());
  p->bytes = bytes_of(d);
}

// Returns false if the run is to stop.
bool fill_columns(const ResizeGeometry& g, int axis, std::int64_t width, Column* columns, CancelPoints* points) {
  return in_parts(points, width, kColumnsPerPoint, kFarElement, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end; ++x) {
      if (g.is_identity(axis)) {
        columns[x] = {static_cast<std::int32_t>(x), static_cast<std::int32_t>(x), 0};
        continue;
      }
      const ResizePlace at = resize_place(g, axis, x);
      if (g.mode == ResizeMode::kNearest) {
        const auto i = static_cast<std::int32_t>(resize_nearest(g, axis, at));
        columns[x] = {i, i, 0};
      } else {
        const LinearTap tap = resize_linear(g, axis, at);
        columns[x] = {static_cast<std::int32_t>(tap.low), static_cast<std::int32_t>(tap.high), tap.weight};
      }
    }
  });
}

// Where output line `line` lies in the input: the two input lines and the weight of the second.
struct Line {
  std::int64_t low = 0, high = 0;
  float weight = 0;
};

// Channels last, lines are numbered without the channels. `rows`: positions of the axis before the last, as those of the columns.
Line find_line(const ResizeGeometry& g, const Shape& x, const Shape& y, std::int64_t line, bool last, const Column* rows) {
  Line r;
  std::int64_t step = 1;
  for (int axis = x.rank() - 2; axis >= 0; --axis) {
    if (last && axis == 1) continue;
    const std::int64_t position = line % y[axis];
    line /= y[axis];
    std::int64_t low = position, high = position;
    if (axis == x.rank() - 2) {
      low = rows[position].low;
      high = rows[position].high;
      r.weight = rows[position].weight;
    } else if (!g.is_identity(axis)) {
      const ResizePlace at = resize_place(g, axis, position);
      if (g.mode == ResizeMode::kNearest) {
        low = high = resize_nearest(g, axis, at);
      } else {
        const LinearTap tap = resize_linear(g, axis, at);
        low = tap.low;
        high = tap.high;
        r.weight = tap.weight;
      }
    }
    r.low += low * step;
    r.high += high * step;
    step *= x[axis];
  }
  return r;
}

void run_line(const ResizeGeometry& g, const Line& at, const float* low, const float* high, const Column* columns,
              std::int64_t width, float* to) {
  if (g.mode == ResizeMode::kNearest) {
    for (std::int64_t i = 0; i < width; ++i) to[i] = low[columns[i].low];
    return;
  }
  const float v = at.weight;
  for (std::int64_t i = 0; i < width; ++i) {
    const Column& c = columns[i];
    const float top = (1 - c.weight) * low[c.low] + c.weight * low[c.high];
    const float bottom = (1 - c.weight) * high[c.low] + c.weight * high[c.high];
    to[i] = (1 - v) * top + v * bottom;
  }
}

struct Channels {
  std::int64_t in, out;
  std::int64_t in_pitch, out_pitch;  // floats from one position to the next
  bool same;                         // otherwise nearest, which also picks channels
};

// Positions between two cancellation points, for at most kColumnsPerPoint channels.
std::int64_t positions_per_point(const Channels& c) { return kColumnsPerPoint / std::max<std::int64_t>(1, c.out); }

void run_line_last(Isa isa, const ResizeGeometry& g, const Line& at, const float* low, const float* high, const Column* columns,
                   std::int64_t width, const Channels& c, float* to, CancelPoints* points) {
  const simd_elementwise::Loops& loops = simd_elementwise::loops(isa);
  const std::int64_t work = !c.same ? kFarElement : g.mode == ResizeMode::kNearest ? 1 : 4;  // of a channel
  const bool few = c.out <= kColumnsPerPoint && c.same;
  const std::int64_t at_once = few ? positions_per_point(c) : width;
  std::int64_t left = 0;  // of the positions that go together
  for (std::int64_t i = 0; i < width; ++i, to += c.out_pitch) {
    const Column& q = columns[i];
    const float* const from = low + q.low * c.in_pitch;
    if (few) {
      if (left-- == 0) {
        if (stops(points, at_once * c.out * work)) return;
        left = at_once - 1;
      }
      if (g.mode == ResizeMode::kNearest) {
        simd_transpose::loops(isa).copy(from, c.in, 1, c.in, to, c.in);
      } else {
        loops.bilinear(from, low + q.high * c.in_pitch, high + q.low * c.in_pitch, high + q.high * c.in_pitch, q.weight, at.weight,
                       to, c.out);
      }
      continue;
    }
    const float* const right = low + q.high * c.in_pitch;
    const float* const below = high + q.low * c.in_pitch;
    const float* const across = high + q.high * c.in_pitch;
    const bool goes_on = by_parts(points, c.out, 64, work, [&](std::int64_t begin, std::int64_t end) {
      if (!c.same) {
        for (std::int64_t k = begin; k < end; ++k) to[k] = from[resize_nearest(g, 1, resize_place(g, 1, k))];
      } else if (g.mode == ResizeMode::kNearest) {
        simd_transpose::loops(isa).copy(from + begin, c.in, 1, end - begin, to + begin, c.in);
      } else {
        loops.bilinear(from + begin, right + begin, below + begin, across + begin, q.weight, at.weight, to + begin, end - begin);
      }
    });
    if (!goes_on) return;
  }
}

void run_bytes(const KernelArgs& args, const ResizeGeometry& g, const Channels& c, const Column* columns, std::int64_t begin,
               std::int64_t end, CancelPoints* points) {
  const auto& s = args.plan->state<ResizeState>();
  const Shape& x = args.desc->inputs[0].shape;
  const std::int64_t in_width = x[x.rank() - 1] * c.in_pitch;
  for (std::int64_t line = begin * s.per_tile; line < std::min(end * s.per_tile, s.lines) && !stops(points, kFarElement); ++line) {
    const Line at = find_line(g, x, args.desc->outputs[0].shape, line, s.last, columns + s.width);
    const auto* from = args.in<std::uint8_t>(0) + at.low * in_width;
    auto* to = args.out<std::uint8_t>() + line * s.width * c.out_pitch;
    if (c.same && c.out <= kColumnsPerPoint) {
      const std::int64_t at_once = positions_per_point(c);
      const bool goes_on = in_parts(points, s.width, at_once, c.out + kFarElement / 4, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i, to += c.out_pitch) std::copy_n(from + columns[i].low * c.in_pitch, c.out, to);
      });
      if (!goes_on) return;
      continue;
    }
    for (std::int64_t i = 0; i < s.width; ++i, to += c.out_pitch) {
      const std::uint8_t* const pixel = from + columns[i].low * c.in_pitch;
      const bool goes_on = by_parts(points, c.out, 64, c.same ? 1 : kFarElement, [&](std::int64_t first, std::int64_t last) {
        if (c.same) {
          std::copy(pixel + first, pixel + last, to + first);
          return;
        }
        for (std::int64_t k = first; k < last; ++k) to[k] = pixel[resize_nearest(g, 1, resize_place(g, 1, k))];
      });
      if (!goes_on) return;
    }
  }
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ResizeState>();
  const OpDesc& d = *args.desc;
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  ConstTensor inputs[4];
  const std::size_t given = d.inputs.size() < 4 ? d.inputs.size() : 4;
  for (std::size_t i = 0; i < given; ++i) {
    inputs[i] = {d.inputs[i], d.inputs[i].dtype == DType::kUndefined ? nullptr : args.inputs[i].address()};
  }
  const ResizeGeometry g = resize_geometry(*d.node, {inputs, given}, y);
  auto* columns = static_cast<Column*>(args.thread_scratch);
  CancelPoints points = points_of(cancel);
  if (!fill_columns(g, x.rank() - 1, s.width, columns, &points)) return;
  if (s.rows > 0 && !fill_columns(g, x.rank() - 2, s.rows, columns + s.width, &points)) return;
  const Channels channels =
      s.last ? Channels{x[1], y[1], d.input_pitch(0), d.output_pitch(), g.is_identity(1)} : Channels{1, 1, 1, 1, true};
  if (d.inputs[0].dtype != DType::kFloat32) return run_bytes(args, g, channels, columns, begin, end, &points);
  const std::int64_t in_width = x[x.rank() - 1] * channels.in_pitch;
  const std::int64_t out_width = s.width * channels.out_pitch;
  const bool is_short = !s.last && s.width <= kColumnsPerPoint;
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = std::min(first + s.per_tile, s.lines);
    std::int64_t before = -1;  // what the line before was made from
    for (std::int64_t line = first; line < last; ++line) {
      if (stops(&points, kFarElement + (is_short ? s.width * kFunction : 0))) return;
      const Line at = find_line(g, x, y, line, s.last, columns + s.width);
      const float* low = args.in<float>(0) + at.low * in_width;
      const float* high = args.in<float>(0) + at.high * in_width;
      float* to = args.out<float>() + line * out_width;
      const bool repeats = g.mode == ResizeMode::kNearest && at.low == before && channels.out == channels.out_pitch;
      before = at.low;
      if (repeats) {
        if (!copy_by_parts(&points, to, to - out_width, out_width * std::int64_t{sizeof(float)})) return;
      } else if (is_short) {
        run_line(g, at, low, high, columns, s.width, to);
      } else if (s.last) {
        run_line_last(s.isa, g, at, low, high, columns, s.width, channels, to, &points);
      } else {
        const bool goes_on =
            in_parts(&points, s.width, kColumnsPerPoint, kFunction, [&](std::int64_t column, std::int64_t end_column) {
              run_line(g, at, low, high, columns + column, end_column - column, to + column);
            });
        if (!goes_on) return;
      }
    }
    float* const y_first = args.out<float>() + first * out_width;
    const Epilogue* const epilogue = epilogue_of(d);
    if (epilogue == nullptr) continue;
    // A dense output is one run of floats; otherwise each position is a run of its own.
    const bool dense = channels.out == channels.out_pitch;
    const std::int64_t rows = dense ? 1 : (last - first) * s.width, row = dense ? (last - first) * out_width : channels.out;
    for (std::int64_t i = 0; i < rows && !points.stopped; ++i) {
      chain_long(s.isa, y_first + i * channels.out_pitch, row, epilogue, &points);
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "resize",
     .op = "Resize",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run,
     .layouts = layouts,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
    {.name = "upsample",
     .op = "Upsample",
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run,
     .layouts = layouts,
     .fusion = {.channel_views = channel_views<kViewInput | kViewOutputs>}},
};

}  // namespace

extern const KernelFamily resize_kernels;
const KernelFamily resize_kernels = {kKernels};

}  // namespace evn
