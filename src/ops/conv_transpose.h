// ConvTranspose: attribute indices and geometry.
#pragma once

#include "ops/infra/window.h"

namespace evn {

struct ConvTransposeAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kDilations, kGroup, kOutputPadding, kOutputShape };
};

// `x` [N, C, spatial...] and `w` [C, M / group, kernel...]. Input position i and tap k add to output position
// i * stride + k * dilation - pad_begin, where that is inside. Pads are resolved; pad_end has no further meaning.
Window conv_transpose_window(const Node& node, const Shape& x, const Shape& w);

}  // namespace evn
