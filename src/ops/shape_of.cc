// Shape: the dims of the input, from axis `start` to `end` (from opset 15; negative counts from the end, then clamped to the rank).
// Size: the number of elements, a scalar. Both int64.
// dtypes: any; the input's bytes are not read. No failures. Exact.
#include <algorithm>

#include "ops/infra/check.h"

namespace evn {
namespace {

struct Range {
  int begin;
  int end;
};

int clamp_axis(std::int64_t axis, int rank) {
  return static_cast<int>(std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank));
}

Range shape_range(const Node& node, int rank) {
  if (!attr_given(node, 0)) return {0, rank};
  const int begin = clamp_axis(attr_int(node, 0), rank);
  return {begin, std::max(begin, clamp_axis(attr_int(node, 1), rank))};
}

DType int64_output(const Node&, std::span<const DType>, int) { return DType::kInt64; }

void infer_shape(InferContext& c) {
  const Range range = shape_range(c.node, c.shape(0).rank());
  c.outputs[0].shape = {range.end - range.begin};
}

void infer_size(InferContext& c) { c.outputs[0].shape = {}; }

void reference_shape(const ReferenceContext& c) {
  const Shape& shape = c.input(0).desc.shape;
  const Range range = shape_range(c.node, shape.rank());
  std::copy(shape.dims().begin() + range.begin, shape.dims().begin() + range.end, c.output().as<std::int64_t>());
}

void reference_size(const ReferenceContext& c) { *c.output().as<std::int64_t>() = c.input(0).desc.shape.elements(); }

// Without `end`: all axes, which INT64_MAX is clamped to.
constexpr AttributeSpec kShape15[] = {int_attribute("start", 0), int_attribute("end", INT64_MAX)};

constexpr OpDef kOps[] = {
    {.name = "Shape",
     .since = 1,
     .dtypes = kStoredDtype,
     .flags = kOpShapeOnly,
     .output_dtype = int64_output,
     .infer = infer_shape,
     .reference = reference_shape},
    {.name = "Shape",
     .since = 15,
     .attributes = kShape15,
     .dtypes = kStoredDtype,
     .flags = kOpShapeOnly,
     .output_dtype = int64_output,
     .infer = infer_shape,
     .reference = reference_shape},
    {.name = "Size",
     .since = 1,
     .dtypes = kStoredDtype,
     .flags = kOpShapeOnly,
     .output_dtype = int64_output,
     .infer = infer_size,
     .reference = reference_size},
};

}  // namespace

extern const OpFamily shape_of_family;
const OpFamily shape_of_family = {kOps};

}  // namespace evn
