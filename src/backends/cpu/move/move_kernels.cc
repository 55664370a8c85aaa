// Operators that only move elements, of any dtype: Transpose, Slice, Expand, Tile, RepeatTo, DepthToSpace, SpaceToDepth. A tile is
// a run of elements of the output.
#include "backends/cpu/elementwise/elementwise_loops.h"
#include "backends/cpu/follow.h"
#include "backends/cpu/move/strided_copy.h"
#include "backends/cpu/support.h"
#include "ops/depth_to_space.h"
#include "ops/gradient.h"
#include "ops/merge.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace evn {
namespace {

constexpr std::int64_t kBytesPerTile = 1 << 17;

struct MoveState {
  Isa isa;
  std::int64_t count, per_tile;
  std::size_t element;
  StridedCopy copy;  // Slice makes its own in run, where its lists are known
};

Refusal supports(const OpDesc& d) {
  if (dtype_size(d.outputs[0].dtype) == 0) return "not for this element type";
  if (!d.node->epilogue.empty() && d.outputs[0].dtype != DType::kFloat32) return "fused steps are for float32";
  return nullptr;
}

void plan_common(const OpDesc& d, KernelPlan* p) {
  auto& s = p->state<MoveState>();
  s.isa = cpu_isa();
  s.count = d.outputs[0].shape.elements();
  s.element = dtype_size(d.outputs[0].dtype);
  s.per_tile =
      std::min(kBytesPerTile / static_cast<std::int64_t>(s.element), kElementsPerTile);  // elements that may each miss all caches
  p->tiles = ceil_div(s.count, s.per_tile);
  p->bytes = 2.0 * static_cast<double>(s.count) * static_cast<double>(s.element);
}

template <int Input = 0>
void run_copy(const KernelArgs& args, const StridedCopy& copy, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const auto& s = args.plan->state<MoveState>();
  const Epilogue* epilogue = epilogue_of(*args.desc);
  for (std::int64_t index = begin; index < end && !cancel.stop(); ++index) {
    const std::int64_t first = index * s.per_tile;
    const std::int64_t last = first + s.per_tile < s.count ? first + s.per_tile : s.count;
    strided_copy(s.isa, copy, s.element, args.inputs[Input].address(), args.outputs[0].address(), first, last);
    if (epilogue != nullptr) simd_elementwise::loops(s.isa).chain(args.out<float>() + first, last - first, epilogue);
  }
}

template <int Input = 0>
void run_planned(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  run_copy<Input>(args, args.plan->state<MoveState>().copy, begin, end, cancel);
}

// -------------------------------------------------------------------------------------------------- Transpose --

// What becomes a copy: channels last where they go last anyway, and an image that comes with its channels last and is to have them
// first.
void transpose_layouts(const OpDesc& d, std::span<Layout> inputs, std::span<Layout> outputs) {
  const int rank = d.inputs[0].shape.rank();
  const bool given_last = inputs[0] == Layout::kChannelsLast;
  inputs[0] = Layout::kPlain;
  if (rank < 3) return;
  int perm[kMaxRank];
  transpose_perm(*d.node, rank, perm);
  if (given_last && perm[rank - 1] == 1) inputs[0] = Layout::kChannelsLast;
  if (!given_last && rank == 4 && perm[0] == 0 && perm[1] == 3 && perm[2] == 1) outputs[0] = Layout::kChannelsLast;
}

void transpose_plan(const OpDesc& d, KernelPlan* p) {
  plan_common(d, p);
  const Shape& x = d.inputs[0].shape;
  const int rank = x.rank();
  int perm[kMaxRank];
  std::int64_t dense[kMaxRank], steps[kMaxRank];
  transpose_perm(*d.node, rank, perm);
  row_major_strides(stored_shape(x, d.input_layout(0)), dense);
  for (int i = 0; i < rank; ++i)
    steps[stored_axis(i, rank, d.output_layout())] = dense[stored_axis(perm[i], rank, d.input_layout(0))];
  p->state<MoveState>().copy = make_strided_copy(stored_shape(d.outputs[0].shape, d.output_layout()), steps, 0);
}

// ----------------------------------------------------------------------------------------------------- Expand --

void expand_plan(const OpDesc& d, KernelPlan* p) {
  plan_common(d, p);
  const Shape& x = d.inputs[0].shape;
  const Shape& y = d.outputs[0].shape;
  std::int64_t dense[kMaxRank], steps[kMaxRank];
  row_major_strides(x, dense);
  for (int i = 0; i < y.rank(); ++i) {
    const int axis = i - (y.rank() - x.rank());
    steps[i] = axis < 0 || x[axis] == 1 ? 0 : dense[axis];
  }
  p->state<MoveState>().copy = make_strided_copy(y, steps, 0);
}

// ------------------------------------------------------------------------------------------------------- Tile --

// Strides of input x, which has as many axes as y or fewer.
void plan_tiles(const OpDesc& d, const Shape& x, KernelPlan* p) {
  plan_common(d, p);
  const Shape& y = d.outputs[0].shape;
  StridedCopy& copy = p->state<MoveState>().copy;
  copy = {};
  if (y.elements() == 0) return;
  std::int64_t dense[kMaxRank];
  row_major_strides(x, dense);
  for (int i = y.rank() - 1; i >= 0; --i) {
    const int axis = i - (y.rank() - x.rank());
    const std::int64_t within = axis < 0 ? 1 : x[axis];
    copy.add_axis(within, axis < 0 ? 0 : dense[axis]);
    copy.add_axis(y[i] / within, 0);
  }
  if (copy.rank == 0) copy = make_strided_copy(Shape{}, dense, 0);
}

void tile_plan(const OpDesc& d, KernelPlan* p) { plan_tiles(d, d.inputs[0].shape, p); }
void repeat_plan(const OpDesc& d, KernelPlan* p) { plan_tiles(d, d.inputs[1].shape, p); }

// ------------------------------------------------------------------------------- DepthToSpace, SpaceToDepth --

template <BlockMove (*MoveOf)(const Node&, const Shape&)>
void block_plan(const OpDesc& d, KernelPlan* p) {
  plan_common(d, p);
  const BlockMove move = MoveOf(*d.node, d.inputs[0].shape);
  std::int64_t dense[kMaxRank], steps[6];
  row_major_strides(move.split, dense);
  Shape shape;
  for (int i = 0; i < 6; ++i) {
    shape.push_back(move.split[move.perm[i]]);
    steps[i] = dense[move.perm[i]];
  }
  p->state<MoveState>().copy = make_strided_copy(shape, steps, 0);
}

// ------------------------------------------------------------------------------------------------------ Slice --

void slice_run(const KernelArgs& args, std::int64_t begin, std::int64_t end, const Cancel& cancel) {
  const OpDesc& d = *args.desc;
  const Shape& x = d.inputs[0].shape;
  ConstTensor lists[5];
  const std::size_t given = d.inputs.size() < 5 ? d.inputs.size() : 5;
  for (std::size_t i = 0; i < given; ++i) {
    lists[i] = {d.inputs[i], d.inputs[i].dtype == DType::kUndefined ? nullptr : args.inputs[i].address()};
  }
  SliceAxis axes[kMaxRank];
  resolve_slice(*d.node, {lists, given}, x, axes);
  const Layout layout = d.output_layout();
  std::int64_t steps[kMaxRank];
  row_major_strides(stored_shape(x, layout), steps);
  if (layout == Layout::kChannelsLast) {
    for (int i = 0; i + 1 < x.rank(); ++i) steps[i] = steps[i] / x[1] * d.input_pitch(0);
  }
  std::int64_t start = 0;
  for (int i = 0; i < x.rank(); ++i) {
    std::int64_t& step = steps[stored_axis(i, x.rank(), layout)];
    start += axes[i].start * step;
    step = axes[i].count > 1 ? step * axes[i].step : 0;
  }
  run_copy(args, make_strided_copy(stored_shape(d.outputs[0].shape, layout), steps, start), begin, end, cancel);
}

constexpr Kernel kKernels[] = {
    {.name = "transpose",
     .op = "Transpose",
     .rank = 10,
     .supports = supports,
     .plan = transpose_plan,
     .run = run_planned<>,
     .layouts = transpose_layouts},
    {.name = "expand", .op = "Expand", .rank = 10, .supports = supports, .plan = expand_plan, .run = run_planned<>},
    {.name = "repeat_to",
     .op = kRepeatTo,
     .domain = kInternalDomain,
     .rank = 10,
     .supports = supports,
     .plan = repeat_plan,
     .run = run_planned<1>},
    {.name = "tile", .op = "Tile", .rank = 10, .supports = supports, .plan = tile_plan, .run = run_planned<>},
    {.name = "depth_to_space",
     .op = "DepthToSpace",
     .rank = 10,
     .supports = supports,
     .plan = block_plan<depth_to_space>,
     .run = run_planned<>},
    {.name = "space_to_depth",
     .op = "SpaceToDepth",
     .rank = 10,
     .supports = supports,
     .plan = block_plan<space_to_depth>,
     .run = run_planned<>},
    {.name = "slice",
     .op = "Slice",
     .rank = 10,
     .supports = supports,
     .plan = plan_common,
     .run = slice_run,
     .layouts = follow_first,
     .fusion = {.channel_views = channel_views<kViewInput>}},
};

}  // namespace

extern const KernelFamily move_kernels;
const KernelFamily move_kernels = {kKernels};

}  // namespace evn
