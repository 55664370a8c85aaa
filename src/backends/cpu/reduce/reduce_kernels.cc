// ReduceSum, ReduceMean, ReduceMax and ReduceMin of float32 over neighbouring axes: the input is seen as [outer, length, inner], in
// either layout. A tile is a run of outputs.
#include "ops/reduce.h"

#include <algorithm>
#include <bit>

#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/reduce/long_lines.h"
#include "backends/cpu/reduce/rows_loops.h"
#include "backends/cpu/support.h"

namespace evn {
namespace {

constexpr std::int64_t kColumns = 32;  // outputs of a tile are a multiple where neighbours are reduced together

struct ReduceState {
  Isa isa;
  std::int64_t length, inner, count, per_tile;
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

bool are_neighbours(std::uint32_t bits) {
  const std::uint32_t run = bits >> std::countr_zero(bits);
  return (run & (run + 1)) == 0;
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
  const std::uint32_t bits = axes_of(d);
  if (bits == 0) return "no axes";
  return are_neighbours(bits) ? nullptr : "only over neighbouring axes";
}

// Channels last, where the axes are then neighbours too. Without axis 1 what is left lies channels last as well; with it, plain.
void layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const int rank = d.inputs[0].shape.rank();
  const std::uint32_t bits = axes_of(d);
  const bool takes = inputs[0] == Layout::kChannelsLast && (bits & 1u) == 0 && are_neighbours(stored_bits(bits, rank, inputs[0]));
  std::fill(inputs.begin(), inputs.end(), Layout::kPlain);
  if (!takes) return;
  inputs[0] = Layout::kChannelsLast;
  if ((bits & 2u) == 0 && d.outputs[0].shape.rank() >= 3) outputs[0] = Layout::kChannelsLast;
}

void plan(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<ReduceState>();
  const Shape x = stored_shape(d.inputs[0].shape, d.input_layout(0));
  const std::uint32_t bits = stored_bits(axes_of(d), x.rank(), d.input_layout(0));
  const int first = std::countr_zero(bits);
  const int last = static_cast<int>(std::bit_width(bits));
  s.isa = cpu_isa();
  s.length = x.elements(first, last);
  s.inner = x.elements(last, x.rank());
  s.count = checked_mul(x.elements(0, first), s.inner);
  s.per_tile = units_per_tile(s.count, static_cast<double>(s.length), kElementsPerTile);
  if (s.inner > 1) s.per_tile = ceil_div(s.per_tile, kColumns) * kColumns;
  p->tiles = ceil_div(s.count, s.per_tile);
  p->flops = static_cast<double>(x.elements());
  p->bytes = bytes_of(d);
}

template <simd_rows::Reduce Op>
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
      const float* x = args.in<float>(0) + at / s.inner * s.length * s.inner + column;
      const std::int64_t width = last - at < s.inner - column ? last - at : s.inner - column;
      if (s.inner == 1) {
        y[at] = is_long ? reduce_long(s.isa, Op, x, s.length, &points) : loops.reduce(Op, x, s.length);
      } else if (is_long) {
        reduce_long_columns(s.isa, Op, x, y + at, s.length, s.inner, width, &points);
      } else {
        loops.reduce_columns(Op, x, y + at, s.length, s.inner, width);
      }
      at += width;
      if (is_long && points.stopped) return;
    }
    simd_elementwise::loops(s.isa).chain(y + first, last - first, epilogue_of(*args.desc));
  }
}

template <simd_rows::Reduce Op>
constexpr Kernel row(const char* name, const char* op) {
  return {.name = name, .op = op, .rank = 10, .supports = supports, .plan = plan, .run = run<Op>, .layouts = layouts};
}

constexpr Kernel kKernels[] = {
    row<simd_rows::Reduce::kSum>("reduce_sum", "ReduceSum"),
    row<simd_rows::Reduce::kMean>("reduce_mean", "ReduceMean"),
    row<simd_rows::Reduce::kMax>("reduce_max", "ReduceMax"),
    row<simd_rows::Reduce::kMin>("reduce_min", "ReduceMin"),
};

}  // namespace

extern const KernelFamily reduce_kernels;
const KernelFamily reduce_kernels = {kKernels};

}  // namespace evn
