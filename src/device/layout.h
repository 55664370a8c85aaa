// How the elements of a value lie in memory. Devices exchange plain values; within a device a kernel may ask for another layout,
// and the planner puts the re-layouts in between (decision 0019).
#pragma once

#include <cstdint>

#include "core/shape.h"

namespace evn {

enum class Layout : std::uint8_t {
  kPlain,         // row-major
  kChannelsLast,  // [N, spatial..., C], row-major: axis 1 comes last. Of values of rank 3 and above only
};

// The axes in the order in which they lie in memory: a kernel that is asked for either layout works on this shape.
inline Shape stored_shape(const Shape& shape, Layout layout) {
  if (layout == Layout::kPlain) return shape;
  Shape stored = shape;
  const int rank = shape.rank();
  for (int i = 1; i + 1 < rank; ++i) stored[i] = shape[i + 1];
  stored[rank - 1] = shape[1];
  return stored;
}

// Where an axis of the value stands in stored_shape.
inline int stored_axis(int axis, int rank, Layout layout) {
  if (layout == Layout::kPlain || axis == 0) return axis;
  return axis == 1 ? rank - 1 : axis - 1;
}

}  // namespace evn
