// The inputs of Resize and Upsample, read and checked.
#pragma once

#include "ops/resize.h"

namespace evn {

struct ResizeInputs {
  std::uint32_t axes = 0;  // bit i: axis i may be resized
  int count = 0;           // entries of the lists below, one for each axis of `order`
  int order[kMaxRank] = {};
  bool known = false;  // scales or sizes have values
  bool by_sizes = false;
  float scales[kMaxRank] = {};
  std::int64_t sizes[kMaxRank] = {};
  float roi_begin[kMaxRank] = {};  // 0 and 1 where there is no roi
  float roi_end[kMaxRank] = {};
};

// Modes and numbers of the attributes; the axes are left at their defaults.
ResizeGeometry resize_attributes(const Node& node);

// `inputs` as in a ReferenceContext, with null data where a value is not known.
ResizeInputs resize_inputs(const Node& node, std::span<const ConstTensor> inputs, int rank);

// Sets g->rank and g->axis, whose numbers are right where x is known, and gives the output's shape.
Shape apply_resize_inputs(const Node& node, const ResizeInputs& given, const Shape& x, ResizeGeometry* g);

}  // namespace evn
