// Copies a strided view of a tensor into a dense one: what Transpose, Slice, Expand, Tile and others have in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/shape.h"

namespace evn {

struct StridedCopy {
  static constexpr int kMostAxes = 2 * kMaxRank;  // an axis that is tiled is two
  int rank = 0;                                   // of the merged axes, at least 1; axis 0 is the innermost
  std::int64_t dims[kMostAxes] = {};
  std::int64_t steps[kMostAxes] = {};  // in elements of the input; may be negative or 0
  std::int64_t start = 0;

  // Puts an axis outside all others.
  void add_axis(std::int64_t dim, std::int64_t step);
};

// Merges the axes of a view: output element (i...) is input element start + sum of i[a] * steps[a].
StridedCopy make_strided_copy(const Shape& out, const std::int64_t* steps, std::int64_t start);

// Writes elements [begin, end) of the dense output. `element` is 1, 2, 4, 8 or 16 bytes.
void strided_copy(Isa isa, const StridedCopy& c, std::size_t element, const void* from, void* to, std::int64_t begin,
                  std::int64_t end);

}  // namespace evn
