// Split: cuts the input along `axis` into one part for each output.
// Sizes: the attribute `split` before 13, input 1 later; without them equal parts. From 18 num_outputs may stand instead, and the
// last part may be smaller (parts of ceil(dim / num_outputs)), or empty.
// dtypes: any. Failures: sizes that are negative, do not add up to the dim or are not one for each output; a dim that does not
// divide (before 18). Exact.
#include "ops/split.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "ops/infra/check.h"

namespace evn {
namespace {

void set_sizes(InferContext& c, int axis, std::span<const std::int64_t> sizes) {
  if (sizes.size() != c.outputs.size()) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu sizes for %zu outputs", sizes.size(), c.outputs.size());
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "a size of %lld", static_cast<long long>(sizes[i]));
    sum = checked_add(sum, sizes[i]);
    c.outputs[i].shape = c.shape(0);
    c.outputs[i].shape[axis] = sizes[i];
  }
  require_dim(c.shape(0)[axis], sum, 0);
}

void set_equal(InferContext& c, int axis, bool uneven) {
  const auto parts = static_cast<std::int64_t>(c.outputs.size());
  const std::int64_t dim = c.shape(0)[axis];
  if (dim >= 0 && !uneven && dim % parts != 0) {
    fail(EVN_ERROR_INVALID_MODEL, "%lld elements do not divide into %lld parts", static_cast<long long>(dim),
         static_cast<long long>(parts));
  }
  const std::int64_t size = dim < 0 ? -1 : ceil_div(dim, parts);
  std::int64_t left = dim;
  for (TensorDesc& output : c.outputs) {
    output.shape = c.shape(0);
    output.shape[axis] = dim < 0 ? -1 : std::min(size, left);
    left -= dim < 0 ? 0 : output.shape[axis];
  }
}

void infer_split(InferContext& c) {
  const int axis = normalize_axis(attr_int(c.node, SplitAttr::kAxis), c.shape(0).rank());
  const bool by_input = c.node.op->max_inputs == 2;
  if (!by_input) {
    const std::span<const std::int64_t> sizes = attr_ints(c.node, SplitAttr::kSplit);
    return sizes.empty() ? set_equal(c, axis, false) : set_sizes(c, axis, sizes);
  }
  const std::int64_t count = attr_given(c.node, SplitAttr::kNumOutputs) ? attr_int(c.node, SplitAttr::kNumOutputs) : 0;
  if (count != 0) {
    if (c.has_input(1)) fail(EVN_ERROR_INVALID_MODEL, "both sizes and num_outputs are given");
    if (count != static_cast<std::int64_t>(c.outputs.size())) {
      fail(EVN_ERROR_INVALID_MODEL, "num_outputs is %lld, but there are %zu", static_cast<long long>(count), c.outputs.size());
    }
    return set_equal(c, axis, true);
  }
  if (!c.has_input(1)) return set_equal(c, axis, false);
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_rank(c, 1, 1, 1);
  require_dim(c.shape(1)[0], static_cast<std::int64_t>(c.outputs.size()), 1);
  if (c.values.size() > 1 && c.values[1].data != nullptr) {
    return set_sizes(c, axis, {c.values[1].as<std::int64_t>(), static_cast<std::size_t>(c.values[1].desc.shape.elements())});
  }
  for (TensorDesc& output : c.outputs) {
    output.shape = c.shape(0);
    output.shape[axis] = -1;
  }
}

void reference_split(const ReferenceContext& c) {
  const TensorDesc& x = c.input(0).desc;
  if (x.shape.elements() == 0) return;
  const int axis = normalize_axis(attr_int(c.node, SplitAttr::kAxis), x.shape.rank());
  const std::int64_t outer = x.shape.elements(0, axis);
  const std::int64_t unit = x.shape.elements(axis + 1, x.shape.rank()) * static_cast<std::int64_t>(dtype_size(x.dtype));
  const std::int64_t row = x.shape[axis] * unit;
  const std::int64_t* const sizes = c.has_input(1) ? c.input(1).as<std::int64_t>() : nullptr;
  std::int64_t begin = 0;
  for (std::size_t part = 0; part < c.outputs.size(); ++part) {
    const std::int64_t block = split_part_size(c.node, x.shape[axis], part, sizes) * unit;
    for (std::int64_t i = 0; i < outer && c.outputs[part].present() && block > 0; ++i) {
      cancellation_point();
      move_in_pieces(c.outputs[part].as<char>() + i * block, c.input(0).as<char>() + i * row + begin,
                     static_cast<std::size_t>(block));
    }
    begin += block;
  }
}

constexpr AttributeSpec kSplit2[] = {int_attribute("axis", 0), optional_attribute("split", AttributeType::kInts)};
constexpr AttributeSpec kSplit13[] = {int_attribute("axis", 0)};
constexpr AttributeSpec kSplit18[] = {int_attribute("axis", 0), int_attribute("num_outputs", 0)};

constexpr OpDef kOps[] = {
    {.name = "Split",
     .since = 2,
     .max_outputs = kVariadic,
     .attributes = kSplit2,
     .dtypes = kMoved,
     .flags = kOpMoves,
     .infer = infer_split,
     .reference = reference_split},
    {.name = "Split",
     .since = 13,
     .max_inputs = 2,
     .max_outputs = kVariadic,
     .attributes = kSplit13,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_split,
     .reference = reference_split},
    {.name = "Split",
     .since = 18,
     .max_inputs = 2,
     .max_outputs = kVariadic,
     .attributes = kSplit18,
     .dtypes = kMoved,
     .value_inputs = 2,
     .flags = kOpMoves,
     .infer = infer_split,
     .reference = reference_split},
};

}  // namespace

std::int64_t split_part_size(const Node& node, std::int64_t dim, std::size_t part, const std::int64_t* sizes) {
  if (node.op->max_inputs == 1 && attr_given(node, SplitAttr::kSplit)) return attr_ints(node, SplitAttr::kSplit)[part];
  if (sizes != nullptr) return sizes[part];
  const std::int64_t size = ceil_div(dim, static_cast<std::int64_t>(node.outputs.size()));
  return std::clamp<std::int64_t>(dim - size * static_cast<std::int64_t>(part), 0, size);
}

extern const OpFamily split_family;
const OpFamily split_family = {kOps};

}  // namespace evn
