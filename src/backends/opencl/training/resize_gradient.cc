// ResizeGradient of float32, in all modes: axis by axis, with tables of taps that the device makes in each run.
#include <algorithm>

#include "backends/opencl/training/support.h"
#include "ops/resize.h"

namespace evn {
namespace {

constexpr OpenClFunction kTaps{"resize_gradient", "axis_taps"};
constexpr OpenClFunction kRanges{"resize_gradient", "axis_ranges"};
constexpr OpenClFunction kAxisGradient{"resize_gradient", "resize_axis_gradient"};

enum : int { kX, kDy = 4 };

// The struct that resize_gradient.cl takes, laid out as there.
struct Axis {
  std::int32_t mode, coordinates, nearest, antialias, exclude_outside, taps, in, out;
  float cubic_a, scale, roi_begin, roi_end;
  std::int64_t step, start, unit;
};

// What is done to one axis.
struct Pass {
  std::int64_t outer, inner;
  std::int32_t axis, in, out, taps;
};

struct State {
  Axis shared;  // without what differs between the axes
  std::int32_t count;
  Pass passes[kMaxRank];
  std::int64_t firsts, weights, ranges, values;  // elements of the parts of the scratch block: tables, and twice values
};
static_assert(sizeof(State) <= KernelPlan::kStateBytes);

Refusal supports(const OpDesc& desc) {
  for (int i = 1; i < kDy; ++i) {
    if (desc.has_input(i) && desc.constant(i) == nullptr) return "roi, scales and sizes must be constant";
  }
  return refuse_unless_plain(desc);
}

// Words in the order of resize.h.
Axis shared_of(const ResizeGeometry& g) {
  Axis a{};
  a.mode = static_cast<std::int32_t>(g.mode);
  a.coordinates = static_cast<std::int32_t>(g.coordinates);
  a.nearest = static_cast<std::int32_t>(g.nearest);
  a.antialias = g.antialias;
  a.exclude_outside = g.exclude_outside && (g.antialias || g.mode == ResizeMode::kCubic);
  a.cubic_a = g.cubic_a;
  return a;
}

void add_pass(State* s, const Pass& pass) {
  s->passes[s->count++] = pass;
  s->firsts = std::max<std::int64_t>(s->firsts, pass.out);
  s->weights = std::max(s->weights, checked_mul<std::int64_t>(pass.out, pass.taps));
  s->ranges = std::max<std::int64_t>(s->ranges, 2 * std::int64_t{pass.in});
}

void plan(const OpDesc& desc, KernelPlan* plan) {
  const Shape &x = desc.inputs[kX].shape, &y = desc.inputs[kDy].shape;
  State& s = plan->state<State>();
  s = State{};
  if (y.elements() == 0) {
    add_pass(&s, {1, 1, -1, to_int(x.elements()), 0, 1});
  } else {
    const KnownInputs known(desc);
    const ResizeGeometry g = resize_geometry(*desc.node, known.span().first(kDy), y);
    s.shared = shared_of(g);
    for (int i = 0; i < x.rank(); ++i) {
      if (g.is_identity(i)) continue;
      const ResizeAxis& a = g.axis[i];
      // The axes before are those of x by now.
      add_pass(&s, {x.elements(0, i), y.elements(i + 1, y.rank()), i, to_int(a.input), to_int(a.output),
                    to_int(resize_most_taps(g, i))});
      s.values = std::max(s.values, x.elements(0, i + 1) * y.elements(i + 1, y.rank()));
    }
  }
  if (s.count < 2) s.values = 0;
  const std::int64_t elements =
      checked_add(checked_add(s.firsts, s.weights), checked_add(s.ranges, checked_mul<std::int64_t>(2, s.values)));
  plan->scratch_bytes = checked_mul(static_cast<std::size_t>(elements), sizeof(float));
  plan->flops = 8.0 * static_cast<double>(std::max(x.elements(), y.elements()));
  count_bytes(desc, plan);
}

void run(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const State& s = args.plan->state<State>();
  Launcher& cl = launcher(args);
  const Buffer& dx = args.outputs[0];
  if (s.count == 0) return cl.copy(args.inputs[kDy], dx, args.desc->outputs[0].size_bytes());
  std::size_t used = 0;
  const auto take = [&](std::int64_t elements) {
    const Buffer taken = part_of(args.scratch, used, static_cast<std::size_t>(elements) * sizeof(float));
    used += taken.size;
    return taken;
  };
  const Buffer firsts = take(s.firsts), weights = take(s.weights), ranges = take(s.ranges);
  const Buffer values[] = {take(s.values), take(s.values)};
  const KnownInputs known(*args.desc);
  const Shape& y = args.desc->inputs[kDy].shape;
  const ResizeGeometry g = y.elements() == 0 ? ResizeGeometry{} : resize_geometry(*args.desc->node, known.span().first(kDy), y);
  for (int i = 0; i < s.count; ++i) {
    const Pass& pass = s.passes[i];
    Axis a = s.shared;
    a.taps = pass.taps;
    a.in = pass.in;
    a.out = pass.out;
    const ResizeAxis axis = pass.axis < 0 ? ResizeAxis{} : g.axis[pass.axis];
    a.scale = axis.scale;
    a.roi_begin = axis.roi_begin;
    a.roi_end = axis.roi_end;
    a.step = axis.step;
    a.start = axis.start;
    a.unit = axis.unit;
    cl.run(kTaps, {a.out}, firsts, weights, a);
    cl.run(kRanges, {a.in}, firsts, ranges, a);
    const std::int64_t rows = pass.outer * a.in, chunk = chunk_elements(cl, rows * pass.inner);
    const std::int64_t row_chunk = pass.inner >= chunk ? 1 : ceil_div(chunk, std::max<std::int64_t>(pass.inner, 1));
    cl.run(kAxisGradient, {ceil_div(pass.inner, chunk), ceil_div(rows, row_chunk)}, i == 0 ? args.inputs[kDy] : values[(i - 1) % 2],
           firsts, weights, ranges, i + 1 == s.count ? dx : values[i % 2], rows, pass.inner, chunk, row_chunk, a);
  }
}

constexpr Kernel kKernels[] = {
    {.name = "resize_gradient",
     .op = kResizeGradient,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = plan,
     .run = run},
};

}  // namespace

extern const KernelFamily resize_gradient_opencl_kernels;
const KernelFamily resize_gradient_opencl_kernels = {kKernels};

}  // namespace evn
