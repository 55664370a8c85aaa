// Split: attribute indices, and the sizes of the parts.
#pragma once

#include "ops/op.h"

namespace evn {

// Before 13 the sizes are the attribute kSplit; from 13 they are input 1; from 18 there is kNumOutputs.
struct SplitAttr {
  enum : int { kAxis, kSplit, kNumOutputs = 1 };
};

// Size of a part along the axis, of which the input has `dim` elements. The shape of an output tells it too, unless the node does
// not want that output. `sizes`: the elements of input 1; null: it is not given.
std::int64_t split_part_size(const Node& node, std::int64_t dim, std::size_t part, const std::int64_t* sizes);

}  // namespace evn
