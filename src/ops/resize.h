// Resize and Upsample: attribute indices, and the geometry that turns an output position into input positions and weights.
#pragma once

#include <vector>

#include "ops/op.h"

namespace evn {

// Attributes that an older version lacks read as "not given". Upsample and Resize-10 have kMode only (Upsample-7 has kScales too).
struct ResizeAttr {
  enum : int {
    kMode,
    kCoordinateTransformationMode,
    kCubicCoeffA,
    kExcludeOutside,
    kExtrapolationValue,
    kNearestMode,
    kAntialias,
    kAxes,
    kKeepAspectRatioPolicy,
    kScales = 1,  // Upsample-7
  };
};

// The version that the node is of; the derivative (ResizeGradient) has the attributes of the newest.
inline int resize_version(const Node& node) { return node.domain.empty() ? node.op->since : 18; }

enum class ResizeMode { kNearest, kLinear, kCubic };
enum class CoordinateMode {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfCropAndResize,
  kTfHalfPixelForNn
};
// The last is the rule before opset 11: down where an axis grows, up where it shrinks.
enum class NearestMode { kRoundPreferFloor, kRoundPreferCeil, kFloor, kCeil, kFloorOrCeil };

struct ResizeAxis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  float scale = 1;      // as given; if sizes are given, the float nearest to their ratio
  float roi_begin = 0;  // tf_crop_and_resize only, in [0, 1] of the input
  float roi_end = 1;
  // If sizes are given, the input coordinate of output position p is (step * p + start) / unit, without any rounding. unit is 0 if
  // scales are given: coordinates are then computed in float32, as the format's formulas have it.
  std::int64_t step = 0;
  std::int64_t start = 0;
  std::int64_t unit = 0;
};

// An input coordinate, which may lie outside the input: below + rest, with 0 <= rest < 1.
struct ResizePlace {
  std::int64_t below;
  double rest;
};

struct ResizeGeometry {
  ResizeMode mode = ResizeMode::kNearest;
  CoordinateMode coordinates = CoordinateMode::kHalfPixel;
  NearestMode nearest = NearestMode::kRoundPreferFloor;
  float cubic_a = -0.75f;
  bool exclude_outside = false;
  bool antialias = false;
  float extrapolation_value = 0;  // tf_crop_and_resize: for positions outside the input
  int rank = 0;
  ResizeAxis axis[kMaxRank];

  // Axis that is copied: every output position reads the input position of its own number.
  bool is_identity(int i) const {
    return axis[i].input == axis[i].output && axis[i].scale == 1 && coordinates != CoordinateMode::kTfCropAndResize;
  }
};

// `inputs` as in a ReferenceContext: data of roi, scales and sizes must be there where they are given (that of x is not read).
// `y`: the output's shape.
ResizeGeometry resize_geometry(const Node& node, std::span<const ConstTensor> inputs, const Shape& y);

// The input coordinate of an output position, not clamped.
ResizePlace resize_place(const ResizeGeometry& geometry, int axis, std::int64_t position);

// True where tf_crop_and_resize gives extrapolation_value instead of a sample.
bool resize_is_outside(const ResizeGeometry& geometry, int axis, const ResizePlace& place);

// Nearest: the input position, clamped to the input.
std::int64_t resize_nearest(const ResizeGeometry& geometry, int axis, const ResizePlace& place);

// Linear: (1 - weight) * x[low] + weight * x[high], both clamped to the input.
struct LinearTap {
  std::int64_t low;
  std::int64_t high;
  float weight;
};
LinearTap resize_linear(const ResizeGeometry& geometry, int axis, const ResizePlace& place);

// The elements that an output position of an axis is the sum of: `count`, from `first` on, which may lie outside the input. None:
// the position is extrapolated.
struct ResizeReach {
  std::int64_t first, count;
  ResizePlace place;
  double stretch;  // of elements to the kernel
};
ResizeReach resize_reach(const ResizeGeometry& geometry, int axis, std::int64_t position);
// The most that there are for a position.
std::int64_t resize_most_taps(const ResizeGeometry& geometry, int axis);

// Element i of these, clamped to the input, with its weight.
struct ResizeTap {
  std::int64_t index;
  double weight;
};
ResizeTap resize_tap(const ResizeGeometry& geometry, int axis, const ResizeReach& reach, std::int64_t i);
// Whether a position's weights are to be divided by their sum.
bool resize_scales_weights(const ResizeGeometry& geometry, int axis);

// All taps of an axis: those of position p are [begin[p], begin[p + 1]).
struct ResizeTaps {
  std::vector<ResizeTap> taps;
  std::vector<std::size_t> begin;
};
ResizeTaps resize_axis_taps(const ResizeGeometry& geometry, int axis);

// The shape rule, of inputs x, roi, scales and sizes, and the attributes of the newest version, in the order of ResizeAttr.
void infer_resize(InferContext& c);
inline constexpr int kResizeAttributeCount = 9;
extern const AttributeSpec kResizeAttributes[kResizeAttributeCount];

}  // namespace evn
