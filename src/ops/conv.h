// Conv: attribute indices and geometry.
#pragma once

#include "ops/infra/window.h"

namespace evn {

// An operator of our own domain (ops/merge.h): ConvInteger, whose sums become float32 (ops/quantized_products.cc).
inline constexpr const char kConvIntegerToFloat[] = "ConvIntegerToFloat";

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

// How far apart in x the elements of an image and its channels lie.
struct ImageSteps {
  std::int64_t position, channel;
};

// One output element without its bias, summed as A. `x` and `w` begin at the group's and the output channel's first plane.
template <typename A, typename T>
A window_dot(const Window& window, const ImageSteps& step, const T* x, const T* w, std::int64_t channels,
             const std::int64_t (&at)[kMaxSpatial]) {
  const WindowAxis* axis = window.axis;
  A sum = 0;
  for (std::int64_t c = 0; c < channels; ++c, x += step.channel, w += window.kernel_elements()) {
    cancellation_point();
    for (std::int64_t k0 = 0; k0 < axis[0].kernel; ++k0) {
      cancellation_point();
      const std::int64_t i0 = at[0] * axis[0].stride + k0 * axis[0].dilation - axis[0].pad_begin;
      if (i0 < 0 || i0 >= axis[0].input) continue;
      for (std::int64_t k1 = 0; k1 < axis[1].kernel; ++k1) {
        cancellation_point();
        const std::int64_t i1 = at[1] * axis[1].stride + k1 * axis[1].dilation - axis[1].pad_begin;
        if (i1 < 0 || i1 >= axis[1].input) continue;
        for (std::int64_t k2 = 0; k2 < axis[2].kernel; ++k2) {
          cancellation_point();
          const std::int64_t i2 = at[2] * axis[2].stride + k2 * axis[2].dilation - axis[2].pad_begin;
          if (i2 < 0 || i2 >= axis[2].input) continue;
          sum += static_cast<A>(x[((i0 * axis[1].input + i1) * axis[2].input + i2) * step.position]) *
                 static_cast<A>(w[(k0 * axis[1].kernel + k1) * axis[2].kernel + k2]);
        }
      }
    }
  }
  return sum;
}

// Checks the inputs of these numbers against each other and the attributes, and sets the shape of output 0.
void infer_convolution(InferContext& c, int x, int w);

}  // namespace evn
