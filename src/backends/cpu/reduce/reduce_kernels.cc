// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceL1, ReduceL2, ReduceSumSquare and ReduceLogSum of float32 over any axes, in
// either layout; and SumTo of the library's own domain, which sums axes that were broadcast or tiled. Neighbouring axes of a kind
// are one. What lies innermost is seen as [length, inner]; further reduced axes outside of that are joined run by run. A tile is a
// run of outputs.
#include "ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"
#include "ops/gradient.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int64_t kColumns = 32;       // outputs of a tile are a multiple where neighbours are reduced together
constexpr std::int64_t kMostColumns = 256;  // that several runs are joined for at a time
constexpr std::int64_t kRunWork = 32;       // of a run, beside its elements

// Axes of one kind, the last varies fastest.
struct AxisList {
  std::int32_t rank = 0;
  std::int64_t dim[kMaxRank] = {}, stride[kMaxRank] = {};

  void add(std::int64_t d, std::int64_t s) {
    dim[rank] = d;
    stride[rank++] = s;
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n = checked_mul(n, dim[i]);
    return n;
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t at = 0;
    for (int i = rank - 1; i > 0; --i) {
      at += index % dim[i] * stride[i];
      index /= dim[i];
    }
    return rank > 0 ? at + index * stride[0] : 0;
  }
};

struct ReduceState {
  Isa isa;
  std::int64_t length, step, inner, count, per_tile;
  std::int64_t runs;  // of `length` elements, to one output
  float divisor;      // of the mean
  AxisList kept, reduced;
};

// The axes as bits; constant where they are an input (supports has checked it).
std::uint32_t axes_of(const OpDesc& d) {
  std::int64_t values[kMaxRank];
  std::size_t n = 0;
  if (reduce_axes_is_input(*d.node) && d.has_input(1)) {
    const Weight* axes = d.constant(1);
    n = static_cast<std::size_t>(axes->desc.shape.elements());
    for (std::size_t i = 0; i < n; ++i) std::memcpy(&values[i], axes->as<char>() + i * sizeof(std::int64_t), sizeof(std::int64_t));
  }
  return reduce_axes(*d.node, d.inputs[0].shape.rank(), {values, n});
}

// The axes as they are stored.
std::uint32_t stored_bits(std::uint32_t bits, int rank, Layout layout) {
  std::uint32_t stored = 0;
  for (int axis = 0; axis < rank; ++axis) {
    if ((bits >> axis & 1u) != 0) stored |= 1u << stored_axis(axis, rank, layout);
  }
  return stored;
}

Refusal supports(const OpDesc& d) {
  if (d.inputs[0].dtype != DType::kFloat32) return kNeedsFloat32;
  if (reduce_axes_is_input(*d.node) && d.has_input(1)) {
    const Weight* axes = d.constant(1);
    if (axes == nullptr) return "the axes are not constant";
    if (axes->desc.dtype != DType::kInt64 || axes->desc.shape.elements() > kMaxRank) return "the axes are not a short int64 list";
  }
  return axes_of(d) == 0 ? "no axes" : nullptr;
}

// Channels last. Without axis 1 what is left lies channels last as well; with it, plain.
void layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const std::uint32_t bits = axes_of(d);
  const bool takes = inputs[0] == Layout::kChannelsLast && (bits & 1u) == 0;
  std::fill(inputs.begin(), inputs.end(), Layout::kPlain);
  if (!takes) return;
  inputs[0] = Layout::kChannelsLast;
  if ((bits & 2u) == 0 && d.outputs[0].shape.rank() >= 3) outputs[0] = Layout::kChannelsLast;
}

// Lines and columns of an input of these dims, of whose axes those of the bits are reduced.
void plan_axes(const OpDesc& d, std::span<const std::int64_t> x, std::uint32_t bits, KernelPlan* p) {
  auto& s = p->state<ReduceState>();
  s = ReduceState{};
  s.isa = cpu_isa();
  s.inner = s.length = s.step = 1;
  std::int64_t stride = 1;
  AxisList kept, reduced;  // from the innermost on
  bool was_reduced = false, first = true;
  for (std::size_t axis = x.size(); axis-- > 0;) {
    const bool is_reduced = (bits >> axis & 1u) != 0;
    if (x[axis] == 1) continue;
    AxisList& list = is_reduced ? reduced : kept;
    if (first || was_reduced != is_reduced) {
      list.add(x[axis], stride);
    } else {
      list.dim[list.rank - 1] = checked_mul(list.dim[list.rank - 1], x[axis]);
    }
    stride = checked_mul(stride, x[axis]);
    was_reduced = is_reduced;
    first = false;
  }
  const auto keep_others = [](const AxisList& from, int begin, AxisList* to) {
    for (int i = from.rank - 1; i >= begin; --i) to->add(from.dim[i], from.stride[i]);
  };
  const bool has_inner = kept.rank > 0 && kept.stride[0] == 1;
  if (has_inner) s.inner = kept.dim[0];
  if (reduced.rank > 0) {
    s.length = reduced.dim[0];
    s.step = reduced.stride[0];
  }
  keep_others(kept, has_inner ? 1 : 0, &s.kept);
  keep_others(reduced, 1, &s.reduced);
  s.runs = s.reduced.count();
  if (s.runs == 0) s.length = 0, s.runs = 1, s.reduced = {};  // of nothing
  s.divisor = static_cast<float>(checked_mul(s.length, s.runs));
  s.count = checked_mul(s.kept.count(), s.inner);
  s.per_tile = units_per_tile(s.count, static_cast<double>(s.length) * static_cast<double>(s.runs), kElementsPerTile);
  if (s.inner > 1) s.per_tile = ceil_div(s.per_tile, kColumns) * kColumns;
  p->tiles = ceil_div(s.count, s.per_tile);
  p->flops = static_cast<double>(s.count) * static_cast<double>(s.length) * static_cast<double>(s.runs);
  p->bytes = bytes_of(d);
}

void plan(const OpDesc& d, KernelPlan* p) {
  const Shape x = stored_shape(d.inputs[0].shape, d.input_layout(0));
  plan_axes(d, x.dims(), stored_bits(axes_of(d), x.rank(), d.input_layout(0)), p);
}

enum class Finish { kNone, kRoot, kLogarithm };

// One output.
template <simd_rows::Reduce Op>
float reduce_runs(const ReduceState& s, const simd_rows::Loops& loops, const float* x, CancelPoints* points) {
  constexpr simd_rows::Reduce kPart = Op == simd_rows::Reduce::kMean ? simd_rows::Reduce::kSum : Op;
  const bool is_long = s.length > kLongLine;
  constexpr bool kSums = joining(Op) == simd_rows::Reduce::kSum;
  float both[2] = {};
  double total = 0;  // of sums: runs may be many
  for (std::int64_t r = 0; r < s.runs && !points->stopped; ++r) {
    const float* from = x + s.reduced.offset(r);
    both[r == 0 ? 0 : 1] = is_long ? reduce_long(s.isa, kPart, from, s.length, points) : loops.reduce(kPart, from, s.length);
    if (kSums) total += static_cast<double>(both[r == 0 ? 0 : 1]);
    else if (r > 0) both[0] = loops.reduce(joining(Op), both, 2);
    if (!is_long && stops(points, s.length + kRunWork)) break;
  }
  if (kSums) both[0] = static_cast<float>(total);
  return Op == simd_rows::Reduce::kMean ? both[0] / s.divisor : both[0];
}

// Outputs that lie side by side.
template <simd_rows::Reduce Op>
void reduce_run_columns(const ReduceState& s, const simd_rows::Loops& loops, const float* x, float* y, std::int64_t width,
                        CancelPoints* points) {
  constexpr simd_rows::Reduce kPart = Op == simd_rows::Reduce::kMean ? simd_rows::Reduce::kSum : Op;
  const bool is_long = s.length > kLongColumn;
  for (std::int64_t j = 0; j < width && !points->stopped; j += kMostColumns) {
    const std::int64_t columns = std::min(kMostColumns, width - j);
    constexpr bool kSums = joining(Op) == simd_rows::Reduce::kSum;
    float both[2 * kMostColumns];
    double totals[kMostColumns] = {};  // of sums: runs may be many
    for (std::int64_t r = 0; r < s.runs && !points->stopped; ++r) {
      const float* from = x + s.reduced.offset(r) + j;
      float* const to = r == 0 ? both : both + columns;
      if (is_long) {
        reduce_long_columns(s.isa, kPart, from, to, s.length, s.step, columns, points);
      } else {
        loops.reduce_columns(kPart, from, to, s.length, s.step, columns);
      }
      for (std::int64_t i = 0; kSums && i < columns; ++i) totals[i] += static_cast<double>(to[i]);
      if (!kSums && r > 0) loops.reduce_columns(joining(Op), both, both, 2, columns, columns);
      if (!is_long && stops(points, s.length * columns + kRunWork)) break;
    }
    for (std::int64_t i = 0; kSums && i < columns; ++i) both[i] = static_cast<float>(totals[i]);
    for (std::int64_t i = 0; i < columns; ++i) y[j + i] = Op == simd_rows::Reduce::kMean ? both[i] / s.divisor : both[i];
  }
}

template <simd_rows::Reduce Op, Finish kFinish, int Input = 0>
void run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ReduceState>();
  const simd_rows::Loops& loops = simd_rows::loops(s.isa);
  CancelPoints points = points_of(cancel);
  // A tile of short lines is small.
  const bool is_long = s.length > (s.inner == 1 ? kLongLine : kLongColumn);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = first + s.per_tile < s.count ? first + s.per_tile : s.count;
    float* y = args.out<float>();
    for (std::int64_t at = first; at < last;) {
      const std::int64_t column = at % s.inner;
      const float* x = args.in<float>(Input) + s.kept.offset(at / s.inner) + column;
      const std::int64_t width = last - at < s.inner - column ? last - at : s.inner - column;
      if (s.runs > 1) {
        if (s.inner == 1) {
          y[at] = reduce_runs<Op>(s, loops, x, &points);
        } else {
          reduce_run_columns<Op>(s, loops, x, y + at, width, &points);
        }
        if (points.stopped) return;
      } else if (s.inner == 1) {
        y[at] = is_long ? reduce_long(s.isa, Op, x, s.length, &points) : loops.reduce(Op, x, s.length);
      } else if (is_long) {
        reduce_long_columns(s.isa, Op, x, y + at, s.length, s.step, width, &points);
      } else {
        loops.reduce_columns(Op, x, y + at, s.length, s.step, width);
      }
      at += width;
      if (is_long && points.stopped) return;
    }
    if constexpr (kFinish == Finish::kRoot) {
      for (std::int64_t i = first; i < last; ++i) y[i] = std::sqrt(y[i]);
    } else if constexpr (kFinish == Finish::kLogarithm) {
      for (std::int64_t i = first; i < last; ++i) y[i] = std::log(y[i]);
    }
    simd_elementwise::loops(s.isa).chain(y + first, last - first, epilogue_of(*args.desc));
  }
}

// ------------------------------------------------------------------------------------------------------------ SumTo --

constexpr int kMostFolded = kMaxRank / 2;  // an axis that was tiled is two

Refusal sum_to_supports(const OpDesc& d) {
  if (epilogue_of(d) != nullptr) return kNoEpilogue;
  if (d.inputs[1].dtype != DType::kFloat32) return kNeedsFloat32;
  return d.inputs[1].shape.rank() <= kMostFolded ? nullptr : "only up to four axes";
}

void sum_to_plan(const OpDesc& d, KernelPlan* p) {
  const Shape &x = d.inputs[1].shape, &y = d.outputs[0].shape;
  std::int64_t dims[kMaxRank];
  std::size_t n = 0;
  std::uint32_t bits = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const int axis = i - (x.rank() - y.rank());
    const std::int64_t within = axis < 0 ? 1 : y[axis];
    bits |= 1u << n;
    dims[n++] = within == 0 ? 1 : x[i] / within;
    dims[n++] = within;
  }
  plan_axes(d, {dims, n}, bits, p);
  if (x.elements() == y.elements()) p->in_place = 2;
}

// Nothing is to be done where it has the input's memory.
void sum_to_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<ReduceState>();
  if (args.plan->in_place == 0) return run<simd_rows::Reduce::kSum, Finish::kNone, 1>(args, begin, end, cancel);
  CancelPoints points = points_of(cancel);
  const std::int64_t first = begin * s.per_tile, last = std::min(end * s.per_tile, s.count);
  if (args.outputs[0].address() == args.inputs[1].address() || first >= last) return;
  copy_by_parts(&points, args.out<float>() + first, args.in<float>(1) + first, (last - first) * std::int64_t{sizeof(float)});
}

template <simd_rows::Reduce Op, Finish kFinish = Finish::kNone>
constexpr Kernel row(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports, .plan = plan, .run = run<Op, kFinish>, .layouts = layouts};
}

constexpr Kernel kKernels[] = {
    row<simd_rows::Reduce::kSum>("reduce_sum", "ReduceSum"),
    row<simd_rows::Reduce::kMean>("reduce_mean", "ReduceMean"),
    row<simd_rows::Reduce::kMax>("reduce_max", "ReduceMax"),
    row<simd_rows::Reduce::kMin>("reduce_min", "ReduceMin"),
    row<simd_rows::Reduce::kAbsSum>("reduce_l1", "ReduceL1"),
    row<simd_rows::Reduce::kSquareSum, Finish::kRoot>("reduce_l2", "ReduceL2"),
    row<simd_rows::Reduce::kSquareSum>("reduce_sum_square", "ReduceSumSquare"),
    row<simd_rows::Reduce::kSum, Finish::kLogarithm>("reduce_log_sum", "ReduceLogSum"),
    {.name = "sum_to",
     .op = kSumTo,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = sum_to_supports,
     .plan = sum_to_plan,
     .run = sum_to_run},
};

}  // namespace

extern const KernelFamily reduce_kernels;
const KernelFamily reduce_kernels = {kKernels};

}  // namespace evn
