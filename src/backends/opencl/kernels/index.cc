// Operators that move elements by indices or by their position: GatherElements, GatherND, ScatterElements, Scatter, ScatterND,
// OneHot, TopK, Trilu, Tile, ReverseSequence, DepthToSpace, SpaceToDepth, BitCast. Updates that meet are taken in their order, as
// the reference does.
#include <algorithm>

#include "backends/opencl/kernels/strided.h"
#include "ops/depth_to_space.h"

namespace evn {
namespace {

constexpr OpenClFunction kGatherElements{"index", "gather_elements"};
constexpr OpenClFunction kGatherNd{"index", "gather_nd"};
constexpr OpenClFunction kScatterElements{"index", "scatter_elements"};
constexpr OpenClFunction kScatterNd{"index", "scatter_nd"};
constexpr OpenClFunction kOneHot{"index", "one_hot"};
constexpr OpenClFunction kTopK[] = {{"index", "top_k_float"}, {"index", "top_k_int"}, {"index", "top_k_long"}};  // by number_type
constexpr OpenClFunction kTrilu{"index", "trilu"};
constexpr OpenClFunction kTile{"index", "tile"};
constexpr OpenClFunction kReverse{"index", "reverse_sequence"};

// The struct that index.cl takes, laid out as there.
struct View {
  std::int32_t rank, width;
  std::int64_t dim[kMaxRank];
  std::int64_t stride[2][kMaxRank];
};

std::int32_t width_of(const OpDesc& desc) { return static_cast<std::int32_t>(dtype_size(desc.outputs[0].dtype)); }
std::int32_t is_wide(const TensorDesc& desc) { return desc.dtype == DType::kInt64; }

void count_moves(const OpDesc& desc, KernelPlan* plan) { plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes()); }

void finish(const KernelArgs& args) {
  run_epilogue(launcher(args), args.outputs[0], args.desc->outputs[0].shape.elements(), args.desc->node->epilogue);
}

// ---- GatherElements ----

struct GatherState {
  View view;
  std::int64_t n, length, step;
};

void plan_gather_elements(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& indices = desc.inputs[1].shape;
  const int axis = normalize_axis(attr_int(*desc.node, 0), x.rank());
  GatherState& s = plan->state<GatherState>();
  s.view.rank = x.rank();
  s.view.width = width_of(desc);
  row_major_strides(x, s.view.stride[0]);
  for (int i = 0; i < x.rank(); ++i) s.view.dim[i] = indices[i];
  s.n = indices.elements();
  s.length = x[axis];
  s.step = s.view.stride[0][axis];
  s.view.stride[0][axis] = 0;
  count_moves(desc, plan);
}

void run_gather_elements(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const GatherState& s = args.plan->state<GatherState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.n);
  cl.run(kGatherElements, {ceil_div(s.n, chunk)}, args.inputs[0], args.inputs[1], args.outputs[0], s.view, s.n, chunk, s.length,
         s.step, is_wide(args.desc->inputs[1]));
  finish(args);
}

// ---- GatherND and ScatterND ----

struct PointState {
  View view;  // the axes that coordinates are of
  std::int64_t rows, per_batch, batch_step, block;
  std::int32_t op, type;
};

// `depth` coordinates after `batch` axes.
void plan_points(const OpDesc& desc, int batch, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& indices = desc.inputs[1].shape;
  const int depth = static_cast<int>(indices[indices.rank() - 1]);
  std::int64_t strides[kMaxRank] = {};
  row_major_strides(x, strides);
  PointState& s = plan->state<PointState>();
  s.view.rank = depth;
  s.view.width = width_of(desc);
  for (int k = 0; k < depth; ++k) {
    s.view.dim[k] = x[batch + k];
    s.view.stride[0][k] = strides[batch + k];
  }
  s.rows = indices.elements(0, indices.rank() - 1);
  s.per_batch = indices.elements(batch, indices.rank() - 1);
  s.batch_step = x.elements(batch, x.rank());
  s.block = x.elements(batch + depth, x.rank());
  count_moves(desc, plan);
}

void plan_gather_nd(const OpDesc& desc, KernelPlan* plan) {
  plan_points(desc, attr_given(*desc.node, 0) ? static_cast<int>(attr_int(*desc.node, 0)) : 0, plan);
}

void run_gather_nd(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PointState& s = args.plan->state<PointState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.block);
  cl.run(kGatherNd, {ceil_div(s.block, chunk), s.rows}, args.inputs[0], args.inputs[1], args.outputs[0], s.view, s.per_batch,
         s.batch_step, s.block, chunk);
  finish(args);
}

// ---- ScatterElements and ScatterND: a copy of x, then the updates ----

// The number that index.cl has for it.
std::int32_t reduction_of(const Node& node, int attribute) {
  if (!attr_given(node, attribute)) return 0;
  constexpr const char* kWords[] = {"none", "add", "mul", "min", "max"};
  for (std::int32_t i = 0; i < 5; ++i) {
    if (attr_string(node, attribute) == kWords[i]) return i;
  }
  return 0;
}

std::int32_t number_type(DType dtype) {
  return dtype == DType::kFloat32 ? 0 : dtype == DType::kInt32 ? 1 : dtype == DType::kInt64 ? 2 : -1;
}

template <int kAttribute>
Refusal supports_scatter(const OpDesc& desc) {
  const int attribute = kAttribute < static_cast<int>(desc.node->op->attributes.size()) ? kAttribute : -1;
  if (attribute >= 0 && reduction_of(*desc.node, attribute) != 0 && number_type(desc.inputs[0].dtype) < 0) {
    return "reductions only of float32, int32 and int64";
  }
  return refuse_unless_movable(desc);
}

void copy_unless_in_place(const KernelArgs& args) {
  const Buffer& x = args.inputs[0];
  const Buffer& y = args.outputs[0];
  if (x.memory != y.memory || x.offset != y.offset) launcher(args).copy(x, y, args.desc->outputs[0].size_bytes());
}

struct ScatterState {
  View view;  // the axes of the indices but one, with strides of the indices and of x
  std::int64_t lines, count, update_step, length, y_step;
  std::int32_t op, type;
};

void plan_scatter_elements(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& indices = desc.inputs[1].shape;
  const int axis = normalize_axis(attr_int(*desc.node, 0), x.rank());
  std::int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  row_major_strides(indices, from);
  row_major_strides(x, to);
  ScatterState& s = plan->state<ScatterState>();
  s.view.width = width_of(desc);
  s.lines = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    s.view.dim[s.view.rank] = indices[i];
    s.view.stride[0][s.view.rank] = from[i];
    s.view.stride[1][s.view.rank++] = to[i];
    s.lines *= indices[i];
  }
  s.count = indices[axis];
  s.update_step = from[axis];
  s.length = x[axis];
  s.y_step = to[axis];
  s.op = desc.node->op->attributes.size() > 1 ? reduction_of(*desc.node, 1) : 0;
  s.type = number_type(desc.inputs[0].dtype);
  plan->in_place = 1;
  count_moves(desc, plan);
}

void run_scatter_elements(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ScatterState& s = args.plan->state<ScatterState>();
  Launcher& cl = launcher(args);
  copy_unless_in_place(args);
  const std::int64_t chunk =
      cl.is_cpu() ? std::max<std::int64_t>(1, chunk_elements(cl, s.lines * s.count) / std::max<std::int64_t>(s.count, 1)) : 1;
  cl.run(kScatterElements, {ceil_div(s.lines, chunk)}, args.inputs[1], args.inputs[2], args.outputs[0], s.view, s.lines, chunk,
         s.count, s.update_step, s.length, s.y_step, is_wide(args.desc->inputs[1]), s.op, s.type);
  finish(args);
}

void plan_scatter_nd(const OpDesc& desc, KernelPlan* plan) {
  plan_points(desc, 0, plan);
  PointState& s = plan->state<PointState>();
  s.op = desc.node->op->attributes.empty() ? 0 : reduction_of(*desc.node, 0);
  s.type = number_type(desc.inputs[0].dtype);
  plan->in_place = 1;
}

void run_scatter_nd(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PointState& s = args.plan->state<PointState>();
  Launcher& cl = launcher(args);
  copy_unless_in_place(args);
  const std::int64_t chunk = cl.is_cpu() ? std::max<std::int64_t>(cl.lanes(), s.block / 16) : cl.lanes();
  cl.run(kScatterNd, {ceil_div(s.block, chunk)}, args.inputs[1], args.inputs[2], args.outputs[0], s.view, s.rows, s.block, chunk,
         s.op, s.type);
  finish(args);
}

// ---- OneHot ----

struct OneHotState {
  std::int64_t n, depth, inner;
};

Refusal supports_one_hot(const OpDesc& desc) {
  if (number_type(desc.inputs[0].dtype) < 0) return "indices only of float32, int32 and int64";
  return refuse_unless_movable(desc);
}

void plan_one_hot(const OpDesc& desc, KernelPlan* plan) {
  const Shape& y = desc.outputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, 0), y.rank());
  plan->state<OneHotState>() = {y.elements(), y[axis], y.elements(axis + 1, y.rank())};
  count_moves(desc, plan);
}

void run_one_hot(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const OneHotState& s = args.plan->state<OneHotState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.n);
  cl.run(kOneHot, {ceil_div(s.n, chunk)}, args.inputs[0], args.inputs[2], args.outputs[0], s.n, chunk, s.depth, s.inner,
         width_of(*args.desc), number_type(args.desc->inputs[0].dtype));
  finish(args);
}

// ---- TopK ----

struct TopKState {
  std::int64_t rows, length, inner, k;
  std::int32_t largest, type;
};

Refusal supports_top_k(const OpDesc& desc) {
  if (desc.inputs[0].shape.rank() == 0) return "a scalar";
  return number_type(desc.inputs[0].dtype) < 0 ? "only float32, int32 and int64" : nullptr;
}

void plan_top_k(const OpDesc& desc, KernelPlan* plan) {
  enum : int { kAxis, kLargest };
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, kAxis), x.rank());
  const std::int64_t inner = x.elements(axis + 1, x.rank());
  const std::int32_t largest = desc.node->op->since < 11 || attr_int(*desc.node, kLargest) != 0;
  const std::size_t given = desc.outputs[0].dtype != DType::kUndefined ? 0 : 1;
  plan->state<TopKState>() = {x.elements(0, axis) * inner,     x[axis], inner,
                              desc.outputs[given].shape[axis], largest, number_type(desc.inputs[0].dtype)};
  plan->bytes = static_cast<double>(desc.inputs[0].size_bytes());
}

void run_top_k(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const TopKState& s = args.plan->state<TopKState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = cl.is_cpu() ? std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(s.length, 1)) : 1;
  const std::int32_t has_y = args.outputs[0].memory != nullptr;
  const std::int32_t has_places = args.outputs.size() > 1 && args.outputs[1].memory != nullptr;
  const Buffer& some = args.outputs[has_y != 0 ? 0 : 1];
  cl.run(kTopK[s.type], {ceil_div(s.rows, chunk)}, args.inputs[0], some, has_places != 0 ? args.outputs[1] : some, s.rows, s.length,
         s.inner, s.k, chunk, s.largest, has_y, has_places);
  if (has_y != 0) finish(args);
}

// ---- Trilu ----

void plan_trilu(const OpDesc& desc, KernelPlan* plan) {
  plan->in_place = 1;
  count_moves(desc, plan);
}

void run_trilu(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const Shape& x = args.desc->inputs[0].shape;
  Launcher& cl = launcher(args);
  const std::int64_t n = x.elements();
  const std::int64_t chunk = chunk_elements(cl, n);
  const std::int32_t has_diagonal = args.desc->has_input(1);
  const std::int32_t upper = attr_int(*args.desc->node, 0) != 0;
  cl.run(kTrilu, {ceil_div(n, chunk)}, args.inputs[0], args.inputs[has_diagonal != 0 ? 1 : 0], args.outputs[0], n, chunk,
         x[x.rank() - 2], x[x.rank() - 1], has_diagonal, upper, width_of(*args.desc));
  finish(args);
}

// ---- Tile ----

void plan_tile(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  View& v = plan->state<View>();
  v.rank = x.rank();
  v.width = width_of(desc);
  for (int i = 0; i < x.rank(); ++i) {
    v.dim[i] = desc.outputs[0].shape[i];
    v.stride[0][i] = x[i];
  }
  row_major_strides(x, v.stride[1]);
  count_moves(desc, plan);
}

void run_tile(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  Launcher& cl = launcher(args);
  const std::int64_t n = args.desc->outputs[0].shape.elements();
  const std::int64_t chunk = chunk_elements(cl, n);
  cl.run(kTile, {ceil_div(n, chunk)}, args.inputs[0], args.outputs[0], args.plan->state<View>(), n, chunk);
  finish(args);
}

// ---- ReverseSequence ----

struct ReverseState {
  std::int64_t time, batch, block;
  std::int32_t batch_first;
};

void plan_reverse(const OpDesc& desc, KernelPlan* plan) {
  enum : int { kBatchAxis };
  const Shape& x = desc.inputs[0].shape;
  const bool batch_first = attr_int(*desc.node, kBatchAxis) == 0;
  plan->state<ReverseState>() = {x[batch_first ? 1 : 0], x[batch_first ? 0 : 1], x.elements(2, x.rank()), batch_first};
  count_moves(desc, plan);
}

void run_reverse(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const ReverseState& s = args.plan->state<ReverseState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.block);
  cl.run(kReverse, {ceil_div(s.block, chunk), s.time * s.batch}, args.inputs[0], args.inputs[1], args.outputs[0], s.time, s.batch,
         s.block, chunk, s.batch_first, width_of(*args.desc));
  finish(args);
}

// ---- DepthToSpace and SpaceToDepth: one strided copy over six axes ----

template <BlockMove (*MoveOf)(const Node&, const Shape&)>
void plan_blocks(const OpDesc& desc, KernelPlan* plan) {
  const auto [split, perm] = MoveOf(*desc.node, desc.inputs[0].shape);
  std::int64_t dense[kMaxRank] = {}, from[kMaxRank] = {}, to[kMaxRank] = {};
  row_major_strides(split, dense);
  Shape dims;
  for (int i = 0; i < 6; ++i) {
    dims.push_back(split[perm[i]]);
    from[i] = dense[perm[i]];
  }
  row_major_strides(dims, to);
  plan->state<DeviceCopy>() = make_device_copy(dims, from, to);
  count_moves(desc, plan);
}

void run_permutation(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  run_device_copy(launcher(args), args.plan->state<DeviceCopy>(), dtype_size(args.desc->outputs[0].dtype), args.inputs[0],
                  args.outputs[0], args.desc->node->epilogue);
}

// ---- BitCast ----

void run_bit_cast(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  launcher(args).copy(args.inputs[0], args.outputs[0], args.desc->outputs[0].size_bytes());
  finish(args);
}

using Plan = void (*)(const OpDesc&, KernelPlan*);
using Run = void (*)(const KernelArgs&, std::int64_t, std::int64_t, const Cancel&);

constexpr Kernel row(const char* name, const char* op, Plan plan, Run run,
                     Refusal (*supports)(const OpDesc&) = refuse_unless_movable) {
  return {.name = name, .op = op, .rank = 10, .supports = supports, .plan = plan, .run = run};
}

// Without updates the output is the input.
constexpr Kernel scatter(const char* name, const char* op, Plan plan, Run run, Refusal (*supports)(const OpDesc&)) {
  Kernel kernel = row(name, op, plan, run, supports);
  kernel.takes_empty = true;
  return kernel;
}

constexpr Kernel kKernels[] = {
    row("gather_elements", "GatherElements", plan_gather_elements, run_gather_elements),
    row("gather_nd", "GatherND", plan_gather_nd, run_gather_nd),
    scatter("scatter", "Scatter", plan_scatter_elements, run_scatter_elements, supports_scatter<1>),
    scatter("scatter_elements", "ScatterElements", plan_scatter_elements, run_scatter_elements, supports_scatter<1>),
    scatter("scatter_nd", "ScatterND", plan_scatter_nd, run_scatter_nd, supports_scatter<0>),
    row("one_hot", "OneHot", plan_one_hot, run_one_hot, supports_one_hot),
    row("top_k", "TopK", plan_top_k, run_top_k, supports_top_k),
    row("bit_cast", "BitCast", count_moves, run_bit_cast),
    row("trilu", "Trilu", plan_trilu, run_trilu),
    row("tile", "Tile", plan_tile, run_tile),
    row("reverse_sequence", "ReverseSequence", plan_reverse, run_reverse),
    row("depth_to_space", "DepthToSpace", plan_blocks<depth_to_space>, run_permutation),
    row("space_to_depth", "SpaceToDepth", plan_blocks<space_to_depth>, run_permutation),
};

}  // namespace

extern const KernelFamily index_opencl_kernels;
const KernelFamily index_opencl_kernels = {kKernels};

}  // namespace evn
