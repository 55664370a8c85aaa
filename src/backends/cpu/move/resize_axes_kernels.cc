// Linear and cubic Resize and Upsample of float32 over any axes, with antialias: the axes are resized one after the other, each by
// sums of lines. A tile makes some positions of the outermost of them, or whole planes that are small. Weights come from
// ops/resize.h.
#include <algorithm>

#include "backends/cpu/move/resize_lines.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/support.h"
#include "ops/resize.h"

namespace evn {
namespace {

constexpr double kSmallPlane = 4 * kTileCost;      // multiply-adds of one that is not cut
constexpr std::int64_t kBetweenPerTile = 1 << 16;  // floats between two axes of a tile
constexpr double kMostBetween = 1 << 22;           // where that can be had
constexpr double kScalarCost = 4;                  // of a multiply-add along the last axis, where loops are not vectors
constexpr double kTapWork = 16;                    // of an element of the tables, which each thread makes for itself
constexpr double kTablesPerTile = 8;               // as much work has a tile at least
constexpr std::int64_t kPositionsPerPoint = 1 << 10;

struct AxesState {
  Isa isa;
  int passes;                                           // axes that change
  int order[kMaxRank];                                  // these, as they are resized
  int first;                                            // the outermost of them
  std::int64_t planes, planes_per_tile, chunk, chunks;  // a tile: some planes, or some positions of the first axis of one plane
  std::size_t between;                                  // floats between two axes
};

Refusal supports(const OpDesc& d) {
  const Node& n = *d.node;
  if (d.inputs[0].dtype != DType::kFloat32) return kNeedsFloat32;
  if (attr_string(n, ResizeAttr::kMode) == "nearest") return "only linear and cubic";
  const bool old = n.op_type == "Upsample" || n.op->since < 11;
  if (!old && attr_string(n, ResizeAttr::kCoordinateTransformationMode) == "tf_crop_and_resize") return "tf_crop_and_resize";
  return nullptr;
}

ResizeGeometry geometry_of(const OpDesc& d) {
  ConstTensor inputs[4];
  const std::size_t given = std::min<std::size_t>(d.inputs.size(), 4);
  for (std::size_t i = 0; i < given; ++i) {
    const Weight* const value = d.constant(static_cast<int>(i));
    inputs[i] = {d.inputs[i], i == 0 || value == nullptr ? nullptr : value->bytes()};
  }
  return resize_geometry(*d.node, {inputs, given}, d.outputs[0].shape);
}

// Different elements of a position, at most.
std::int64_t most_of(const ResizeGeometry& g, int axis) { return std::min(g.axis[axis].input, resize_most_taps(g, axis)); }

// What resizing a plane takes: multiply-adds, and the most floats between two axes.
struct Cost {
  double work = 0, between = 0;
};

double growth(const ResizeAxis& a) { return static_cast<double>(a.output) / static_cast<double>(a.input); }

Cost cost_of(const AxesState& s, const ResizeGeometry& g, const Shape& x) {
  double size = static_cast<double>(x.elements(s.first, x.rank()));
  Cost cost;
  for (int i = 0; i < s.passes; ++i) {
    const ResizeAxis& a = g.axis[s.order[i]];
    size = size / static_cast<double>(a.input) * static_cast<double>(a.output);
    const double each = s.order[i] == x.rank() - 1 ? kScalarCost : 1;
    cost.work += size * each * static_cast<double>(most_of(g, s.order[i]));
    if (i + 1 < s.passes) cost.between = std::max(cost.between, size);
  }
  return cost;
}

// The table of an axis: spans of its positions, then their weights.
std::size_t table_bytes(const ResizeGeometry& g, int axis) {
  const std::int64_t each =
      checked_add<std::int64_t>(sizeof(ResizeSpan), checked_mul<std::int64_t>(most_of(g, axis), sizeof(float)));
  return align_up(static_cast<std::size_t>(checked_mul(g.axis[axis].output, each)), 64);
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<AxesState>();
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  p->tiles = 0;
  if (y.elements() == 0) return;
  s.isa = cpu_isa();
  const ResizeGeometry g = geometry_of(d);
  s.passes = 0;
  std::size_t tables = 0;
  double table_work = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (g.is_identity(axis)) continue;
    s.order[s.passes++] = axis;
    tables = checked_add(tables, table_bytes(g, axis));
    table_work += kTapWork * static_cast<double>(y[axis]) * static_cast<double>(resize_most_taps(g, axis) + 2);
  }
  s.first = s.passes > 0 ? s.order[0] : 0;
  s.planes = x.elements(0, s.first);
  s.planes_per_tile = 1;
  // From the outermost axis on, some positions of it at a time.
  const auto length = static_cast<double>(y[s.first]);
  Cost cost = cost_of(s, g, x);
  const double tile_cost = std::max(kTileCost, table_work * kTablesPerTile);
  const double between = cost.between / length;
  s.chunk = units_per_tile(y[s.first], cost.work / length, tile_cost);
  s.chunk = std::clamp(static_cast<std::int64_t>(kBetweenPerTile / std::max(between, 1.0)), std::int64_t{1}, s.chunk);
  // Or whole planes, and first what shrinks them most, last what lets them grow most.
  AxesState whole = s;
  for (int i = 0; i < s.passes; ++i) {
    const int axis = s.order[i];
    int at = i;
    // The innermost of several axes that grow alike goes first.
    for (; at > 0 && growth(g.axis[whole.order[at - 1]]) >= growth(g.axis[axis]); --at) {
      whole.order[at] = whole.order[at - 1];
    }
    whole.order[at] = axis;
  }
  const Cost whole_cost = cost_of(whole, g, x);
  const bool is_small =
      whole_cost.work < std::min(cost.work, kSmallPlane) && whole_cost.between <= static_cast<double>(kBetweenPerTile);
  cost.between = between * static_cast<double>(s.chunk);
  if (is_small || cost.between > kMostBetween) {
    s = whole;
    s.chunk = y[s.first];
    cost = whole_cost;
  }
  if (s.chunk == y[s.first]) s.planes_per_tile = units_per_tile(s.planes, cost.work, tile_cost);
  s.chunks = ceil_div(y[s.first], s.chunk);
  s.between = static_cast<std::size_t>(cost.between) + 1;
  p->tiles = checked_mul(ceil_div(s.planes, s.planes_per_tile), s.chunks);
  p->thread_scratch_bytes = checked_add(tables, checked_mul(2 * s.between, sizeof(float)));
  p->flops = 2 * cost.work * static_cast<double>(s.planes);
  p->bytes = bytes_of(d);
}

// Makes the table of the positions [begin, end). Elements that are there twice become one, and those at the ends that weigh nothing
// are left out. Returns false if the run is to stop.
bool fill_table(const ResizeGeometry& g, int axis, std::int64_t begin, std::int64_t end, const ResizeTable& table,
                CancelPoints* points) {
  for (std::int64_t position = begin; position < end; ++position) {
    if (stops(points, kFarElement)) return false;
    const ResizeReach reach = resize_reach(g, axis, position);
    float* const weights = table.weights + position * table.most;
    ResizeSpan span = {0, 0};
    double weight = 0, sum = 0;
    std::int64_t before = -1;  // the element that `weight` is of
    const auto add = [&] {
      if (span.count == 0) span.first = before;
      if (span.count > 0 || weight != 0) weights[span.count++] = static_cast<float>(weight);
      weight = 0;
    };
    const bool goes_on = in_parts(points, reach.count, kPositionsPerPoint, kFunction, [&](std::int64_t i, std::int64_t last) {
      for (; i < last; ++i) {
        const ResizeTap tap = resize_tap(g, axis, reach, i);
        if (tap.index != before && i > 0) add();
        before = tap.index;
        weight += tap.weight;
        sum += tap.weight;
      }
    });
    if (!goes_on) return false;
    add();
    while (span.count > 0 && weights[span.count - 1] == 0) --span.count;
    const bool scales = resize_scales_weights(g, axis);
    for (std::int64_t i = 0; i < span.count && scales; ++i) weights[i] = static_cast<float>(weights[i] / sum);
    table.spans[position] = span;
  }
  return true;
}

// Positions [begin, end) of an axis that has others behind it: lines of `inner` floats. Returns false if the run is to stop.
bool resize_lines(const float* x, std::int64_t inner, const ResizeTable& table, std::int64_t begin, std::int64_t end, float* y,
                  CancelPoints* points) {
  for (std::int64_t position = begin; position < end; ++position, y += inner) {
    const ResizeSpan span = table.spans[position];
    const float* const from = x + span.first * inner;
    const float* const weights = table.weights_of(position);
    if (stops(points, kFarElement)) return false;
    const bool goes_on = by_parts(points, inner, kResizeBlock, span.count + 1, [&](std::int64_t first, std::int64_t last) {
      add_lines(from + first, inner, weights, span.count, y + first, last - first);
    });
    if (!goes_on) return false;
  }
  return true;
}

bool resize_last(const float* x, std::int64_t x_length, std::int64_t rows, const ResizeTable& table, std::int64_t begin,
                 std::int64_t end, float* y, CancelPoints* points) {
  const std::int64_t y_length = end - begin;
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t count = rows - row >= kResizeRows ? kResizeRows : 1;
    const bool goes_on =
        in_parts(points, y_length, kPositionsPerPoint, count * (table.most + 4), [&](std::int64_t first, std::int64_t last) {
          const float* const from = x + row * x_length;
          float* const to = y + row * y_length + first;
          resize_rows(from, x_length, table, begin + first, begin + last, to, y_length, count);
        });
    if (!goes_on) return false;
    row += count;
  }
  return true;
}

// Positions [begin, end) of the first axis of one plane. Returns false if the run is to stop.
bool resize_plane(const AxesState& s, const ResizeGeometry& g, const Shape& x_shape, const float* x, const ResizeTable* tables,
                  std::int64_t begin, std::int64_t end, float* between, float* y, CancelPoints* points) {
  Shape shape = x_shape;
  const int rank = shape.rank();
  if (s.passes == 0)
    return copy_by_parts(points, y, x,
                         shape.elements(s.first + 1, rank) * (end - begin) * static_cast<std::int64_t>(sizeof(float)));
  for (int pass = 0; pass < s.passes; ++pass) {
    const int axis = s.order[pass];
    const std::int64_t low = axis == s.first ? begin : 0, high = axis == s.first ? end : g.axis[axis].output;
    const std::int64_t outer = shape.elements(s.first, axis), inner = shape.elements(axis + 1, rank), length = shape[axis];
    float* const to = pass + 1 == s.passes ? y : between + (pass % 2 == 0 ? 0 : s.between);
    if (inner == 1) {
      if (!resize_last(x, length, outer, tables[pass], low, high, to, points)) return false;
    } else {
      for (std::int64_t i = 0; i < outer; ++i) {
        if (!resize_lines(x + i * length * inner, inner, tables[pass], low, high, to + i * (high - low) * inner, points))
          return false;
      }
    }
    shape[axis] = high - low;
    x = to;
  }
  return true;
}

void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<AxesState>();
  const Shape& x = args.desc->inputs[0].shape;
  const Shape& y = args.desc->outputs[0].shape;
  const ResizeGeometry g = geometry_of(*args.desc);
  auto* scratch = static_cast<char*>(args.thread_scratch);
  ResizeTable tables[kMaxRank];
  CancelPoints points = points_of(cancel);
  for (int pass = 0; pass < s.passes; ++pass) {
    const int axis = s.order[pass];
    auto* const spans = reinterpret_cast<ResizeSpan*>(scratch);
    tables[pass] = {spans, reinterpret_cast<float*>(spans + g.axis[axis].output), most_of(g, axis)};
    const bool by_tile = axis == s.first && s.chunks > 1;
    if (!by_tile && !fill_table(g, axis, 0, g.axis[axis].output, tables[pass], &points)) return;
    scratch += table_bytes(g, axis);
  }
  auto* const between = reinterpret_cast<float*>(scratch);
  const std::int64_t x_plane = x.elements(s.first, x.rank()), y_plane = y.elements(s.first, y.rank());
  const std::int64_t y_position = y.elements(s.first + 1, y.rank());
  for (std::int64_t tile = begin; tile < end && !cancel.stop(); ++tile) {
    const std::int64_t first = tile / s.chunks * s.planes_per_tile, low = tile % s.chunks * s.chunk;
    const std::int64_t last = std::min(first + s.planes_per_tile, s.planes), high = std::min(low + s.chunk, y[s.first]);
    if (s.chunks > 1 && !fill_table(g, s.first, low, high, tables[0], &points)) return;
    for (std::int64_t plane = first; plane < last; ++plane) {
      float* const to = args.out<float>() + plane * y_plane + low * y_position;
      if (!resize_plane(s, g, x, args.in<float>(0) + plane * x_plane, tables, low, high, between, to, &points)) return;
      if (const Epilogue* const epilogue = epilogue_of(*args.desc)) {
        chain_long(s.isa, to, (high - low) * y_position, epilogue, &points);
      }
    }
  }
}

constexpr Kernel kKernels[] = {
    {.name = "resize_axes", .op = "Resize", .rank = 5, .supports = supports, .plan = plan, .run = run},
    {.name = "upsample_axes", .op = "Upsample", .rank = 5, .supports = supports, .plan = plan, .run = run},
};

}  // namespace

extern const KernelFamily resize_axes_kernels;
const KernelFamily resize_axes_kernels = {kKernels};

}  // namespace evn
