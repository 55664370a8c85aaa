// Conv: attribute indices and geometry.
#pragma once

#include "ops/infra/window.h"

namespace evn {

struct ConvAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kDilations, kGroup };
};

// `x` [N, C, spatial...] and `w` [M, C / group, kernel...]; dims may be -1.
Window conv_window(const Node& node, const Shape& x, const Shape& w);

}  // namespace evn
