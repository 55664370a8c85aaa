// Operators that only move elements, of any dtype: Transpose, Slice, Expand, Concat, Split, Pad, Gather, ConstantOfShape.
#include "backends/opencl/kernels/strided.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/concat.h"
#include "ops/gather.h"
#include "ops/pad.h"
#include "ops/slice.h"
#include "ops/split.h"
#include "ops/transpose.h"

namespace evn {
namespace {

constexpr OpenClFunction kCopy1{"strided", "copy_1"};
constexpr OpenClFunction kCopy2{"strided", "copy_2"};
constexpr OpenClFunction kCopy4{"strided", "copy_4"};
constexpr OpenClFunction kCopy8{"strided", "copy_8"};
constexpr OpenClFunction kJoin4{"strided", "join_4"};
constexpr OpenClFunction kTranspose{"strided", "transpose_4"};
constexpr OpenClFunction kFill{"strided", "fill"};
constexpr OpenClFunction kFillBits{"strided", "fill_bits"};
constexpr OpenClFunction kPadRepeat{"strided", "pad_repeat"};
constexpr OpenClFunction kGather{"strided", "gather"};

// Moves an outer axis of x stride 1 to the end, beyond `rank`. False: there is none.
bool find_transposition(DeviceCopy* c) {
  if (c->x_step == 1 || c->x_step == 0 || c->rank == 0) return false;
  for (std::int64_t i = 0; i < c->rank; ++i) {
    if (c->x_stride[i] != 1) continue;
    for (std::int64_t* list : {c->dim, c->x_stride, c->y_stride}) std::rotate(list + i, list + i + 1, list + c->rank);
    --c->rank;
    return true;
  }
  return false;
}

void run_transposition(Launcher& cl, DeviceCopy c, const Buffer& x, const Buffer& y, const Epilogue& epilogue) {
  const std::int64_t across = c.dim[c.rank];
  const std::int64_t outer = c.rows / across;
  c.chunk =
      cl.is_cpu() ? std::max<std::int64_t>(16 * cl.lanes(), ceil_div(4096, cl.lanes() * cl.lanes()) * cl.lanes()) : 4 * cl.lanes();
  cl.run(kTranspose, {ceil_div(across, cl.lanes()), ceil_div(c.inner, c.chunk), outer}, x, y, c, epilogue);
}

const OpenClFunction& copy_function(std::size_t element) { return element == 1 ? kCopy1 : element == 2 ? kCopy2 : kCopy8; }

}  // namespace

DeviceCopy make_device_copy(const Shape& dims, const std::int64_t* x_strides, const std::int64_t* y_strides) {
  DeviceCopy c{};
  std::int64_t last = -1;
  for (int i = 0; i < dims.rank(); ++i) {
    if (dims[i] == 1) continue;
    const bool merges = last >= 0 && c.x_stride[last] == x_strides[i] * dims[i] && c.y_stride[last] == y_strides[i] * dims[i];
    if (!merges) c.dim[++last] = 1;
    c.dim[last] *= dims[i];
    c.x_stride[last] = x_strides[i];
    c.y_stride[last] = y_strides[i];
  }
  const bool contiguous = last >= 0 && c.y_stride[last] == 1;  // else the innermost axis is one of 1
  c.inner = contiguous ? c.dim[last] : 1;
  c.x_step = contiguous ? c.x_stride[last] : 1;
  c.rank = contiguous ? last : last + 1;
  c.rows = 1;
  for (std::int64_t i = 0; i < c.rank; ++i) c.rows *= c.dim[i];
  return c;
}

void run_device_copy(Launcher& cl, DeviceCopy c, std::size_t element, const Buffer& x, const Buffer& y, const Epilogue& epilogue) {
  if (c.rows == 0 || c.inner == 0) return;
  if (element == 4 && c.inner >= cl.lanes() && find_transposition(&c)) return run_transposition(cl, c, x, y, epilogue);
  c.chunk = chunk_elements(cl, c.inner * c.rows);
  c.row_chunk = c.inner >= c.chunk ? 1 : ceil_div(c.chunk, c.inner);
  const Grid grid{ceil_div(c.inner, c.chunk), ceil_div(c.rows, c.row_chunk)};
  if (element == 4) return cl.run(kCopy4, grid, x, y, c, epilogue);
  cl.run(copy_function(element), grid, x, y, c);
}

Refusal refuse_unless_movable(const OpDesc& desc) {
  const std::size_t size = dtype_size(desc.outputs[0].dtype);
  if (size == 0 || size > 8) return "not for this element type";
  return !desc.node->epilogue.empty() && !is_float(desc.outputs[0]) ? "fused steps are for float32" : nullptr;
}

namespace {

std::size_t element_of(const OpDesc& desc) { return dtype_size(desc.outputs[0].dtype); }

// ---- one copy: Transpose, Slice, Expand ----

void plan_copy(const OpDesc& desc, const std::int64_t* x_strides, std::int64_t x_start, KernelPlan* plan) {
  std::int64_t y_strides[kMaxRank] = {};
  row_major_strides(desc.outputs[0].shape, y_strides);
  DeviceCopy& c = plan->state<DeviceCopy>();
  c = make_device_copy(desc.outputs[0].shape, x_strides, y_strides);
  c.x_start = x_start;
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
}

void run_copy(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  run_device_copy(launcher(args), args.plan->state<DeviceCopy>(), element_of(*args.desc), args.inputs[0], args.outputs[0],
                  args.desc->node->epilogue);
}

void plan_transpose(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  int perm[kMaxRank];
  std::int64_t dense[kMaxRank] = {}, strides[kMaxRank] = {};
  transpose_perm(*desc.node, x.rank(), perm);
  row_major_strides(x, dense);
  for (int i = 0; i < x.rank(); ++i) strides[i] = dense[perm[i]];
  plan_copy(desc, strides, 0, plan);
}

void plan_slice(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  SliceAxis axes[kMaxRank];
  std::int64_t strides[kMaxRank] = {};
  resolve_slice(*desc.node, KnownInputs(desc).span(), x, axes);
  row_major_strides(x, strides);
  std::int64_t start = 0;
  for (int i = 0; i < x.rank(); ++i) {
    start += axes[i].start * strides[i];
    strides[i] = axes[i].count > 1 ? strides[i] * axes[i].step : 0;
  }
  plan_copy(desc, strides, start, plan);
}

void plan_expand(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const Shape& y = desc.outputs[0].shape;
  std::int64_t dense[kMaxRank] = {}, strides[kMaxRank] = {};
  row_major_strides(x, dense);
  for (int i = 0; i < y.rank(); ++i) {
    const int axis = i - (y.rank() - x.rank());
    strides[i] = axis < 0 || x[axis] == 1 ? 0 : dense[axis];
  }
  plan_copy(desc, strides, 0, plan);
}

// ---- Concat and Split: a copy for each part ----

struct PartState {
  int axis;
};

int part_axis(const OpDesc& desc, int attribute) {
  return normalize_axis(attr_int(*desc.node, attribute), desc.inputs[0].shape.rank());
}

void plan_concat(const OpDesc& desc, KernelPlan* plan) {
  plan->state<PartState>().axis = part_axis(desc, ConcatAttr::kAxis);
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
}

// The struct that strided.cl takes, laid out as there.
constexpr std::size_t kJoined = 8;
struct Join {
  std::int64_t pitch, start;
  std::int64_t pieces[kJoined + 1], length[kJoined], at[kJoined];
};

// On a GPU, where a command costs more than the copy of a small part: 8 parts at a time.
void run_join(Launcher& cl, const KernelArgs& args, int axis) {
  const Shape& y = args.desc->outputs[0].shape;
  const std::int64_t rows = y.elements(0, axis);
  Join join{};
  join.pitch = y.elements(axis, y.rank());
  for (std::size_t first = 0; first < args.inputs.size(); first += kJoined) {
    const std::size_t count = std::min(kJoined, args.inputs.size() - first);
    Buffer x[kJoined];
    std::int64_t length = 0;
    for (std::size_t i = 0; i < kJoined; ++i) {
      const Shape& shape = args.desc->inputs[i < count ? first + i : first].shape;
      x[i] = args.inputs[i < count ? first + i : first];
      join.length[i] = i < count ? shape.elements(axis, shape.rank()) : 0;
      join.at[i] = length;
      join.pieces[i + 1] = join.pieces[i] + ceil_div(join.length[i], cl.lanes());
      length += join.length[i];
    }
    cl.run(kJoin4, {join.pieces[kJoined], rows}, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], args.outputs[0], join,
           args.desc->node->epilogue);
    join.start += length;
  }
}

void run_concat(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const int axis = args.plan->state<PartState>().axis;
  Launcher& cl = launcher(args);
  if (!cl.is_cpu() && element_of(*args.desc) == 4 && args.inputs.size() > 1) return run_join(cl, args, axis);
  std::int64_t to[kMaxRank] = {}, from[kMaxRank] = {};
  row_major_strides(args.desc->outputs[0].shape, to);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    const Shape& x = args.desc->inputs[i].shape;
    row_major_strides(x, from);
    DeviceCopy c = make_device_copy(x, from, to);
    c.y_start = start;
    run_device_copy(launcher(args), c, element_of(*args.desc), args.inputs[i], args.outputs[0], args.desc->node->epilogue);
    start += x[axis] * to[axis];
  }
}

// The type is that of the input: an output may be left out.
std::size_t split_element(const OpDesc& desc) { return dtype_size(desc.inputs[0].dtype); }

Refusal supports_split(const OpDesc& desc) {
  if (!desc.node->epilogue.empty()) return "no fused steps";
  return split_element(desc) == 0 || split_element(desc) > 8 ? "not for this element type" : nullptr;
}

void plan_split(const OpDesc& desc, KernelPlan* plan) {
  plan->state<PartState>().axis = part_axis(desc, SplitAttr::kAxis);
  plan->bytes = 2.0 * static_cast<double>(desc.inputs[0].size_bytes());
}

void run_split(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const int axis = args.plan->state<PartState>().axis;
  const Shape& x = args.desc->inputs[0].shape;
  const Weight* const list = args.desc->constant(1);
  std::vector<std::int64_t> sizes(list == nullptr ? 0 : args.outputs.size());
  if (!sizes.empty()) std::memcpy(sizes.data(), list->as<char>(), sizes.size() * sizeof(std::int64_t));
  std::int64_t to[kMaxRank] = {}, from[kMaxRank] = {};
  row_major_strides(x, from);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    if (args.outputs[i].memory != nullptr) {
      const Shape& y = args.desc->outputs[i].shape;
      row_major_strides(y, to);
      DeviceCopy c = make_device_copy(y, from, to);
      c.x_start = start;
      run_device_copy(launcher(args), c, split_element(*args.desc), args.inputs[0], args.outputs[i], Epilogue{});
    }
    start += split_part_size(*args.desc->node, x[axis], i, list == nullptr ? nullptr : sizes.data()) * from[axis];
  }
}

// ---- Pad ----

// The struct that strided.cl takes, laid out as there.
struct Repeat {
  std::int32_t rank, mode;
  std::int64_t before[kMaxRank], x_dim[kMaxRank], x_stride[kMaxRank], y_dim[kMaxRank];
};
struct PadState {
  PadMode mode;
  DeviceCopy inside;  // of the constant mode
  float value;        // of versions that have it as an attribute
};

Refusal supports_pad(const OpDesc& desc) { return refuse_unless_movable(desc); }

void plan_pad(const OpDesc& desc, KernelPlan* plan) {
  PadState& s = plan->state<PadState>();
  s.mode = pad_mode(*desc.node);
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
  const bool by_attribute = desc.node->op->max_inputs == 1;
  s.value = by_attribute ? attr_float(*desc.node, PadAttr::kValue) : 0.0f;
  const Shape& x = desc.inputs[0].shape;
  const Shape& y = desc.outputs[0].shape;
  const PadAmounts amounts = resolve_pads(*desc.node, KnownInputs(desc).span(), x.rank());
  std::int64_t from[kMaxRank] = {}, to[kMaxRank] = {};
  row_major_strides(x, from);
  row_major_strides(y, to);
  Shape region = x;
  std::int64_t x_start = 0, y_start = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t first = std::max<std::int64_t>(amounts.begin[i], 0);
    const std::int64_t last = std::min(y[i], x[i] + amounts.begin[i]);
    region[i] = std::max<std::int64_t>(last - first, 0);
    x_start += (first - amounts.begin[i]) * from[i];
    y_start += first * to[i];
  }
  s.inside = make_device_copy(region, from, to);
  s.inside.x_start = x_start;
  s.inside.y_start = y_start;
}

void run_repeat(const KernelArgs& args, PadMode mode) {
  const OpDesc& desc = *args.desc;
  const Shape& x = desc.inputs[0].shape;
  const Shape& y = desc.outputs[0].shape;
  const PadAmounts amounts = resolve_pads(*desc.node, KnownInputs(desc).span(), x.rank());
  Repeat p{};
  p.rank = x.rank();
  p.mode = mode == PadMode::kReflect ? 1 : mode == PadMode::kEdge ? 2 : 3;
  row_major_strides(x, p.x_stride);
  for (int i = 0; i < x.rank(); ++i) {
    p.before[i] = amounts.begin[i];
    p.x_dim[i] = x[i];
    p.y_dim[i] = y[i];
  }
  Launcher& cl = launcher(args);
  const std::int64_t n = y.elements();
  const std::int64_t chunk = chunk_elements(cl, n);
  cl.run(kPadRepeat, {ceil_div(n, chunk)}, args.inputs[0], args.outputs[0], n, chunk, static_cast<std::int32_t>(element_of(desc)),
         p, desc.node->epilogue);
}

void run_pad(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const PadState& s = args.plan->state<PadState>();
  if (s.mode != PadMode::kConstant) return run_repeat(args, s.mode);
  const OpDesc& desc = *args.desc;
  Launcher& cl = launcher(args);
  const std::int64_t n = desc.outputs[0].shape.elements();
  const std::int64_t chunk = chunk_elements(cl, n);
  const auto width = static_cast<std::int32_t>(element_of(desc));
  if (desc.has_input(2)) {
    cl.run(kFill, {ceil_div(n, chunk)}, args.inputs[2], args.outputs[0], n, chunk, width, std::int32_t{1}, desc.node->epilogue);
  } else {
    std::uint64_t bits = 0;
    if (is_float(desc.outputs[0])) std::memcpy(&bits, &s.value, sizeof s.value);
    cl.run(kFillBits, {ceil_div(n, chunk)}, args.outputs[0], n, chunk, width, bits, desc.node->epilogue);
  }
  run_device_copy(cl, s.inside, element_of(desc), args.inputs[0], args.outputs[0], desc.node->epilogue);
}

// ---- Gather ----

struct GatherState {
  std::int64_t outer, length, inner, count;
};

void plan_gather(const OpDesc& desc, KernelPlan* plan) {
  const Shape& x = desc.inputs[0].shape;
  const int axis = normalize_axis(attr_int(*desc.node, GatherAttr::kAxis), x.rank());
  plan->state<GatherState>() = {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank()), desc.inputs[1].shape.elements()};
  plan->bytes = 2.0 * static_cast<double>(desc.outputs[0].size_bytes());
}

void run_gather(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const GatherState& s = args.plan->state<GatherState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.inner);
  const std::int32_t wide = args.desc->inputs[1].dtype == DType::kInt64;
  cl.run(kGather, {ceil_div(s.inner, chunk), s.count, s.outer}, args.inputs[0], args.inputs[1], args.outputs[0], s.length, s.inner,
         s.count, chunk, static_cast<std::int32_t>(element_of(*args.desc)), wide, args.desc->node->epilogue);
}

// ---- ConstantOfShape ----

struct FillState {
  std::int64_t n;
  std::uint64_t bits;
};

void plan_fill(const OpDesc& desc, KernelPlan* plan) {
  FillState& s = plan->state<FillState>();
  s.n = desc.outputs[0].shape.elements();
  if (const Weight* value = attr_tensor(*desc.node, 0)) std::memcpy(&s.bits, value->as<char>(), element_of(desc));
  plan->bytes = static_cast<double>(desc.outputs[0].size_bytes());
}

void run_fill(const KernelArgs& args, std::int64_t, std::int64_t, const Cancel&) {
  const FillState& s = args.plan->state<FillState>();
  Launcher& cl = launcher(args);
  const std::int64_t chunk = chunk_elements(cl, s.n);
  cl.run(kFillBits, {ceil_div(s.n, chunk)}, args.outputs[0], s.n, chunk, static_cast<std::int32_t>(element_of(*args.desc)), s.bits,
         args.desc->node->epilogue);
}

constexpr Kernel kKernels[] = {
    {.name = "transpose",
     .op = "Transpose",
     .rank = 10,
     .supports = refuse_unless_movable,
     .plan = plan_transpose,
     .run = run_copy},
    {.name = "slice", .op = "Slice", .rank = 10, .supports = refuse_unless_movable, .plan = plan_slice, .run = run_copy},
    {.name = "expand", .op = "Expand", .rank = 10, .supports = refuse_unless_movable, .plan = plan_expand, .run = run_copy},
    {.name = "concat",
     .op = "Concat",
     .rank = 10,
     .supports = refuse_unless_movable,
     .plan = plan_concat,
     .run = run_concat,
     .takes_empty = true},
    {.name = "split", .op = "Split", .rank = 10, .supports = supports_split, .plan = plan_split, .run = run_split},
    {.name = "pad", .op = "Pad", .rank = 10, .supports = supports_pad, .plan = plan_pad, .run = run_pad},
    {.name = "gather", .op = "Gather", .rank = 10, .supports = refuse_unless_movable, .plan = plan_gather, .run = run_gather},
    {.name = "constant_of_shape",
     .op = "ConstantOfShape",
     .rank = 10,
     .supports = refuse_unless_movable,
     .plan = plan_fill,
     .run = run_fill},
};

}  // namespace

extern const KernelFamily strided_opencl_kernels;
const KernelFamily strided_opencl_kernels = {kKernels};

}  // namespace evn
