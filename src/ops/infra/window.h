// The geometry of a sliding window (convolutions and pools) over up to three spatial axes, resolved from attributes and shapes.
// Kernels of all backends read it from here, so that there is one rule for auto_pad and ceil_mode.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "ops/op.h"

namespace evn {

inline constexpr int kMaxSpatial = 3;

// One spatial axis, in elements. `input` and `output` may be -1 (unknown) while a model loads, `kernel` too where the weight's
// shape is not known; with SAME padding and an unknown input, the pads are not known either and stand as 0.
struct WindowAxis {
  std::int64_t input = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t pad_begin = 0;
  std::int64_t pad_end = 0;
  std::int64_t output = 1;

  // Input positions from a window's first tap to its last, inclusive.
  std::int64_t extent() const { return (kernel - 1) * dilation + 1; }
};

// axis[0] is the first spatial axis (H of a 2-D image). Axes from `rank` on are of size 1 with a kernel of 1, so that a loop over
// three axes is right for each rank when the data is taken as right-padded with axes of 1.
struct Window {
  int rank = 0;
  WindowAxis axis[kMaxSpatial];

  std::int64_t output_elements() const { return axis[0].output * axis[1].output * axis[2].output; }
  std::int64_t input_elements() const { return axis[0].input * axis[1].input * axis[2].input; }
  std::int64_t kernel_elements() const { return axis[0].kernel * axis[1].kernel * axis[2].kernel; }
};

// The i of [0, count) for which begin + i * stride lies in [0, limit): [low, high).
struct IndexRange {
  std::int64_t low, high;
};
inline IndexRange indices_inside(std::int64_t begin, std::int64_t stride, std::int64_t count, std::int64_t limit) {
  const std::int64_t low = begin >= 0 ? 0 : std::min(count, ceil_div(-begin, stride));
  return {low, std::clamp<std::int64_t>(begin >= limit ? 0 : ceil_div(limit - begin, stride), low, count)};
}

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

// Throws EVN_ERROR_INVALID_MODEL for another word.
AutoPad parse_auto_pad(const std::string& word);

// What the attributes say; empty lists are ONNX's defaults.
struct WindowAttributes {
  AutoPad auto_pad = AutoPad::kNotSet;
  std::span<const std::int64_t> kernel_shape;
  std::span<const std::int64_t> pads;
  std::span<const std::int64_t> strides;
  std::span<const std::int64_t> dilations;
  bool ceil_mode = false;
};

// The window of a convolution or pool over `x` [N, C, spatial...]; `kernel` gives the kernel's sizes (the spatial dims of the
// weight, or kernel_shape). Throws EVN_ERROR_INVALID_MODEL on list lengths, sizes <= 0, negative pads or an output <= 0, and
// EVN_ERROR_UNSUPPORTED on more than three spatial axes.
Window forward_window(const WindowAttributes& attributes, const Shape& x, std::span<const std::int64_t> kernel);

// The kernel's sizes: the dims of the weight from axis 2 on, of which kernel_shape, where it is given, must say the same.
Shape resolve_kernel(const WindowAttributes& attributes, const Shape& weight);

// Kernel, stride, dilation and explicit pads of `rank` axes, checked; inputs and outputs are left at 1.
Window window_from_attributes(const WindowAttributes& attributes, int rank, std::span<const std::int64_t> kernel);

}  // namespace evn
