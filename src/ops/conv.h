// Conv: attribute indices and geometry.
#pragma once

#include "ops/infra/window.h"

namespace evn {

struct ConvAttr {
  enum : int { kAutoPad, kKernelShape, kPads, kStrides, kDilations, kGroup };
};

inline constexpr AttributeSpec kConvAttributes[] = {
    string_attribute("auto_pad", "NOTSET"),
    optional_attribute("kernel_shape", AttributeType::kInts),
    optional_attribute("pads", AttributeType::kInts),
    optional_attribute("strides", AttributeType::kInts),
    optional_attribute("dilations", AttributeType::kInts),
    int_attribute("group", 1),
};

// `x` [N, C, spatial...] and `w` [M, C / group, kernel...]; dims may be -1.
Window conv_window(const Node& node, const Shape& x, const Shape& w);

// Checks the inputs of these numbers against each other and the attributes, and sets the shape of output 0.
void infer_convolution(InferContext& c, int x, int w);

}  // namespace evn
