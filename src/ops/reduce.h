// ReduceSum, ReduceMean, ReduceMax, ReduceMin: attribute indices and the resolved axes.
#pragma once

#include "ops/op.h"

namespace evn {

// Versions that take the axes as an input have no attribute kAxes.
struct ReduceAttr {
  enum : int { kKeepDims, kAxes, kNoopWithEmptyAxes = 1 };
};

// True when this version takes the axes as input 1 (which may be absent).
bool reduce_axes_is_input(const Node& node);

// Axes as a bit mask. `axes_input`: the value of input 1, empty when it is absent or empty (ignored where the axes are an
// attribute). Without axes: all of them, or none with noop_with_empty_axes. Throws EVN_ERROR_INVALID_MODEL on an axis outside the
// rank or twice.
std::uint32_t reduce_axes(const Node& node, int rank, std::span<const std::int64_t> axes_input);

}  // namespace evn
