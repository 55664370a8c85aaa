// Slice: y[i] = x[start + i * step] on the axes listed (default: the first ones), whole axes elsewhere.
// Starts and ends count from the end when negative and are then clamped to the axis, as in NumPy. Before opset 10 they and the axes
// are attributes and steps are 1; later they are inputs 1..4.
// dtypes: any; the lists int32 or int64. Failures: lists of unlike lengths, axes outside the rank or twice, a step of 0. Exact.
#include "ops/slice.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/infra/check.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

// The lists of a node, per entry; `*_known` false: the values are not known now.
struct Lists {
  int count = -1;  // -1: not known
  bool starts_known = false, ends_known = false, axes_known = false, steps_known = false;
  std::int64_t starts[kMaxRank], ends[kMaxRank], axes[kMaxRank], steps[kMaxRank];
};

void set_count(Lists& lists, std::int64_t count, int rank) {
  if (count < 0) return;
  if (lists.count >= 0 && lists.count != count) fail(EVN_ERROR_INVALID_MODEL, "starts, ends, axes and steps differ in length");
  if (count > rank) fail(EVN_ERROR_INVALID_MODEL, "%lld ranges for rank %d", static_cast<long long>(count), rank);
  lists.count = static_cast<int>(count);
}

void read_list(Lists& lists, std::span<const std::int64_t> from, std::int64_t* to, bool* known, int rank) {
  set_count(lists, static_cast<std::int64_t>(from.size()), rank);
  std::copy(from.begin(), from.end(), to);
  *known = true;
}

void read_list(Lists& lists, const ConstTensor& from, std::int64_t* to, bool* known, int rank) {
  const Shape& shape = from.desc.shape;
  if (shape.rank() > 1) fail(EVN_ERROR_INVALID_MODEL, "starts, ends, axes and steps must be lists");
  set_count(lists, shape.rank() == 0 ? 1 : shape[0], rank);
  if (from.data == nullptr) return;
  read_ints(from, to);
  *known = true;
}

Lists read_lists(const Node& node, std::span<const ConstTensor> inputs, int rank) {
  Lists lists;
  const auto given = [&](std::size_t i) { return i < inputs.size() && inputs[i].present(); };
  if (node.op->max_inputs == 1) {
    read_list(lists, attr_ints(node, SliceAttr::kStarts), lists.starts, &lists.starts_known, rank);
    read_list(lists, attr_ints(node, SliceAttr::kEnds), lists.ends, &lists.ends_known, rank);
    if (attr_given(node, SliceAttr::kAxes)) {
      read_list(lists, attr_ints(node, SliceAttr::kAxes), lists.axes, &lists.axes_known, rank);
    }
  } else {
    read_list(lists, inputs[1], lists.starts, &lists.starts_known, rank);
    read_list(lists, inputs[2], lists.ends, &lists.ends_known, rank);
    if (given(3)) read_list(lists, inputs[3], lists.axes, &lists.axes_known, rank);
    if (given(4)) read_list(lists, inputs[4], lists.steps, &lists.steps_known, rank);
  }
  const bool has_axes = node.op->max_inputs == 1 ? attr_given(node, SliceAttr::kAxes) : given(3);
  if (!has_axes && lists.count >= 0) {
    for (int i = 0; i < lists.count; ++i) lists.axes[i] = i;
    lists.axes_known = true;
  }
  if (node.op->max_inputs == 1 || !given(4)) {
    std::fill_n(lists.steps, kMaxRank, 1);
    lists.steps_known = true;
  }
  if (lists.axes_known) axes_mask({lists.axes, static_cast<std::size_t>(lists.count)}, rank);
  return lists;
}

Shape apply_lists(const Lists& lists, const Shape& x, SliceAxis* out) {
  for (int i = 0; i < x.rank(); ++i) out[i] = {0, 1, lists.axes_known ? x[i] : -1};
  const bool ranges_known = lists.starts_known && lists.ends_known && lists.steps_known;
  for (int n = 0; lists.axes_known && n < lists.count; ++n) {
    const int axis = normalize_axis(lists.axes[n], x.rank());
    if (lists.steps_known && lists.steps[n] == 0) fail(EVN_ERROR_INVALID_MODEL, "a step of 0");
    if (ranges_known && x[axis] >= 0) {
      out[axis] = slice_axis(x[axis], lists.starts[n], lists.ends[n], lists.steps[n]);
    } else {
      out[axis].count = -1;
    }
  }
  Shape shape = Shape::of_rank(x.rank());
  for (int i = 0; i < x.rank(); ++i) shape[i] = out[i].count;
  return shape;
}

void infer_slice(InferContext& c) {
  ConstTensor lists[5];
  for (int i = 1; i < 5; ++i) {
    require_dtype(c, i, kIndexDtypes);
    if (c.has_input(i)) lists[i] = known_input(c, i);
  }
  require_same_dtype(c, 1, 4);
  SliceAxis axes[kMaxRank];
  c.outputs[0].shape = apply_lists(read_lists(c.node, lists, c.shape(0).rank()), c.shape(0), axes);
}

void reference_slice(const ReferenceContext& c) {
  const TensorDesc& x = c.input(0).desc;
  SliceAxis axes[kMaxRank];
  resolve_slice(c.node, c.inputs, x.shape, axes);
  Strides strides = dense_strides(x.shape);
  if (c.output().desc.shape.elements() == 0) return;
  std::int64_t start = 0;
  for (int i = 0; i < x.shape.rank(); ++i) {
    start += axes[i].start * strides.step[i];
    // An axis that is left at once has no step: its own may be too large to multiply.
    strides.step[i] = axes[i].count > 1 ? strides.step[i] * axes[i].step : 0;
  }
  gather_strided(c.output().desc.shape, x.dtype, c.output().data, c.input(0).data, strides, start);
}

constexpr AttributeSpec kSlice1[] = {required_attribute("starts", AttributeType::kInts),
                                     required_attribute("ends", AttributeType::kInts),
                                     optional_attribute("axes", AttributeType::kInts)};
constexpr std::uint32_t kLists = 0b11110;

constexpr OpDef kOps[] = {
    {.name = "Slice",
     .since = 1,
     .attributes = kSlice1,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_slice,
     .reference = reference_slice},
    {.name = "Slice",
     .since = 10,
     .min_inputs = 3,
     .max_inputs = 5,
     .dtypes = kMoved,
     .value_inputs = kLists,
     .flags = kOpMoves,
     .infer = infer_slice,
     .reference = reference_slice},
};

}  // namespace

SliceAxis slice_axis(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  if (step == 0) fail(EVN_ERROR_INVALID_MODEL, "a step of 0");
  if (dim == 0) return {0, 1, 0};
  // Beyond this a step leaves any axis at once; and its negation exists.
  constexpr std::int64_t kMaxStep = std::int64_t{1} << 62;
  step = std::clamp(step, -kMaxStep, kMaxStep);
  if (start < 0) start += dim;
  if (end < 0) end += dim;
  if (step > 0) {
    start = std::clamp<std::int64_t>(start, 0, dim);
    end = std::clamp<std::int64_t>(end, 0, dim);
    return {start, step, end > start ? ceil_div(end - start, step) : 0};
  }
  start = std::clamp<std::int64_t>(start, 0, dim - 1);
  end = std::clamp<std::int64_t>(end, -1, dim - 1);
  return {start, step, start > end ? ceil_div(start - end, -step) : 0};
}

Shape resolve_slice(const Node& node, std::span<const ConstTensor> inputs, const Shape& x, SliceAxis* out) {
  return apply_lists(read_lists(node, inputs, x.rank()), x, out);
}

extern const OpFamily slice_family;
const OpFamily slice_family = {kOps};

}  // namespace evn
