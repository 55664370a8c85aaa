// Slice: the resolved range of each axis.
#pragma once

#include "ops/op.h"

namespace evn {

// Attributes of the versions before 10; later ones take starts, ends, axes and steps as inputs 1..4.
struct SliceAttr {
  enum : int { kStarts, kEnds, kAxes };
};

// Output position i of an axis reads input position start + i * step.
struct SliceAxis {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;  // -1: not known
};

// One axis of `dim` elements (>= 0), ONNX's clamping rule. Throws EVN_ERROR_INVALID_MODEL on a step of 0.
SliceAxis slice_axis(std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step);

// All axes of a node whose `x` is known, as steps of any sign. `inputs` as in a ReferenceContext: where starts, ends, axes and
// steps are inputs, their data must be there. Returns the output's shape; out[i] for each axis of x.
Shape resolve_slice(const Node& node, std::span<const ConstTensor> inputs, const Shape& x, SliceAxis* out);

}  // namespace evn
