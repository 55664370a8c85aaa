// MaxPool and AveragePool: attribute indices and geometry.
#pragma once

#include "ops/infra/window.h"

namespace evn {

// Attributes that an older version lacks read as "not given".
struct MaxPoolAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kStorageOrder, kCeilMode, kDilations };
};
struct AveragePoolAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kCountIncludePad, kCeilMode, kDilations };
};

// Of either pool over `x` [N, C, spatial...]. With ceil_mode the last window may reach beyond input + pad_end: taps there count
// neither for the maximum nor, with count_include_pad, for the average.
Window pool_window(const Node& node, const Shape& x);

}  // namespace evn
