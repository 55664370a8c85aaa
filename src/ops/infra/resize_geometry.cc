// The geometry of Resize and Upsample: attributes, scales and the coordinate formulas. See ops/resize.h.
#include <algorithm>
#include <cmath>

#include "ops/infra/check.h"
#include "ops/resize.h"

namespace evn {
namespace {

constexpr const char* kCoordinateModes[] = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
    "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};  // the last is of version 11 alone, but newer models have it too
constexpr double kFar = 1e15;                                       // coordinates beyond are clamped: no tensor is so long
constexpr const char* kNearestModes[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

// The position of a word in a list of an enum's names.
template <typename E, std::size_t N>
E parse_word(const std::string& word, const char* const (&names)[N], const char* what) {
  for (std::size_t i = 0; i < N; ++i) {
    if (word == names[i]) return static_cast<E>(i);
  }
  fail(EVN_ERROR_INVALID_MODEL, "%s must not be '%s'", what, word.c_str());
}

ResizeMode parse_mode(const std::string& word) {
  if (word == "nearest") return ResizeMode::kNearest;
  if (word == "linear" || word == "bilinear") return ResizeMode::kLinear;
  if (word == "cubic") return ResizeMode::kCubic;
  fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", word.c_str());
}

// As far as the formulas see it, a resized axis may have a fractional length.
float resized_length(const ResizeAxis& a) { return a.scale * static_cast<float>(a.input); }

double cubic_weight(double distance, double a) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

// Whether a position is one element of the input.
bool is_copied(const ResizeGeometry& g, int axis) { return g.mode == ResizeMode::kNearest || g.is_identity(axis); }

bool is_plain_linear(const ResizeGeometry& g) { return g.mode == ResizeMode::kLinear && !g.antialias; }

double stretch_of(const ResizeGeometry& g, int axis) { return g.antialias ? std::min<double>(g.axis[axis].scale, 1) : 1; }

// The first element that a kernel reaches, counted from the one below the coordinate; the last one is 1 - first.
std::int64_t first_reached(const ResizeGeometry& g, double stretch) {
  return static_cast<std::int64_t>(std::floor((g.mode == ResizeMode::kLinear ? -1 : -2) / stretch)) + 1;
}

}  // namespace

ResizeGeometry resize_attributes(const Node& node) {
  ResizeGeometry g;
  g.mode = parse_mode(attr_string(node, ResizeAttr::kMode));
  if (resize_version(node) < 11) {
    g.coordinates = CoordinateMode::kAsymmetric;
    g.nearest = NearestMode::kFloorOrCeil;
    return g;
  }
  g.coordinates = parse_word<CoordinateMode>(attr_string(node, ResizeAttr::kCoordinateTransformationMode), kCoordinateModes,
                                             "coordinate_transformation_mode");
  g.nearest = parse_word<NearestMode>(attr_string(node, ResizeAttr::kNearestMode), kNearestModes, "nearest_mode");
  g.cubic_a = attr_float(node, ResizeAttr::kCubicCoeffA);
  g.exclude_outside = attr_int(node, ResizeAttr::kExcludeOutside) != 0;
  g.extrapolation_value = attr_float(node, ResizeAttr::kExtrapolationValue);
  g.antialias = attr_given(node, ResizeAttr::kAntialias) && attr_int(node, ResizeAttr::kAntialias) != 0;
  if (g.antialias && g.mode == ResizeMode::kNearest) fail(EVN_ERROR_INVALID_MODEL, "antialias of mode nearest");
  return g;
}

// Rounds as the formulas of the format do in float32.
static float rounded_coordinate(const ResizeGeometry& g, const ResizeAxis& a, std::int64_t position) {
  const auto x = static_cast<float>(position);
  const float length = resized_length(a);
  const auto last = static_cast<float>(a.input - 1);
  switch (g.coordinates) {
    case CoordinateMode::kHalfPixel: return (x + 0.5f) / a.scale - 0.5f;
    case CoordinateMode::kHalfPixelSymmetric: {
      const float adjustment = static_cast<float>(a.output) / length;
      return static_cast<float>(a.input) / 2 * (1 - adjustment) + (x + 0.5f) / a.scale - 0.5f;
    }
    case CoordinateMode::kPytorchHalfPixel: return a.output > 1 ? (x + 0.5f) / a.scale - 0.5f : 0;
    case CoordinateMode::kAlignCorners: return length == 1 || a.output == 1 ? 0 : x * last / (length - 1);
    case CoordinateMode::kAsymmetric: return x / a.scale;
    case CoordinateMode::kTfCropAndResize:
      if (a.output <= 1) return 0.5f * (a.roi_begin + a.roi_end) * last;
      return a.roi_begin * last + x * (a.roi_end - a.roi_begin) * last / static_cast<float>(a.output - 1);
    case CoordinateMode::kTfHalfPixelForNn: return (x + 0.5f) / a.scale;
  }
  fail(EVN_ERROR_INTERNAL, "unknown coordinate mode %d", static_cast<int>(g.coordinates));
}

ResizePlace resize_place(const ResizeGeometry& g, int axis, std::int64_t position) {
  const ResizeAxis& a = g.axis[axis];
  if (a.unit > 0) {
    const std::int64_t at = a.step * position + a.start;
    ResizePlace place = {at / a.unit, 0};
    if (at % a.unit < 0) --place.below;
    place.rest = static_cast<double>(at - place.below * a.unit) / static_cast<double>(a.unit);
    return place;
  }
  const float at = rounded_coordinate(g, a, position);
  const float down = std::floor(at);
  if (!(down >= -kFar)) return {static_cast<std::int64_t>(-kFar), 0};
  if (down > kFar) return {static_cast<std::int64_t>(kFar), 0};
  return {static_cast<std::int64_t>(down), static_cast<double>(at - down)};
}

bool resize_is_outside(const ResizeGeometry& g, int axis, const ResizePlace& place) {
  const std::int64_t last = g.axis[axis].input - 1;
  const bool inside = place.below >= 0 && (place.below < last || (place.below == last && place.rest == 0));
  return g.coordinates == CoordinateMode::kTfCropAndResize && !inside;
}

std::int64_t resize_nearest(const ResizeGeometry& g, int axis, const ResizePlace& place) {
  bool up = false;
  switch (g.nearest) {
    case NearestMode::kRoundPreferFloor: up = place.rest > 0.5; break;
    case NearestMode::kRoundPreferCeil: up = place.rest >= 0.5; break;
    case NearestMode::kFloor: break;
    case NearestMode::kCeil: up = place.rest > 0; break;
    case NearestMode::kFloorOrCeil: up = place.rest > 0 && g.axis[axis].scale < 1; break;
  }
  return std::clamp<std::int64_t>(place.below + (up ? 1 : 0), 0, g.axis[axis].input - 1);
}

LinearTap resize_linear(const ResizeGeometry& g, int axis, const ResizePlace& place) {
  const std::int64_t last = g.axis[axis].input - 1;
  return {std::clamp<std::int64_t>(place.below, 0, last), std::clamp<std::int64_t>(place.below + 1, 0, last),
          static_cast<float>(place.rest)};
}

ResizeReach resize_reach(const ResizeGeometry& g, int axis, std::int64_t position) {
  ResizeReach r = {position, 1, {position, 0}, 1};
  if (g.is_identity(axis)) return r;
  r.place = resize_place(g, axis, position);
  if (resize_is_outside(g, axis, r.place)) {
    r.count = 0;
  } else if (g.mode == ResizeMode::kNearest) {
    r.first = resize_nearest(g, axis, r.place);
  } else {
    r.stretch = stretch_of(g, axis);
    const std::int64_t first = first_reached(g, r.stretch);
    r.first = r.place.below + first;
    r.count = 2 - 2 * first;
  }
  return r;
}

std::int64_t resize_most_taps(const ResizeGeometry& g, int axis) {
  return is_copied(g, axis) ? 1 : 2 - 2 * first_reached(g, stretch_of(g, axis));
}

ResizeTap resize_tap(const ResizeGeometry& g, int axis, const ResizeReach& r, std::int64_t i) {
  if (is_copied(g, axis)) return {r.first, 1};
  const std::int64_t last = g.axis[axis].input - 1, at = r.first + i;
  ResizeTap tap = {std::clamp<std::int64_t>(at, 0, last), 0};
  if (is_plain_linear(g)) {
    const double above = resize_linear(g, axis, r.place).weight;
    tap.weight = i == 0 ? 1 - above : above;
  } else if (!g.exclude_outside || at == tap.index) {
    const double distance = (static_cast<double>(at - r.place.below) - r.place.rest) * r.stretch;
    tap.weight = g.mode == ResizeMode::kLinear ? std::max(0.0, 1 - std::fabs(distance)) : cubic_weight(distance, g.cubic_a);
  }
  return tap;
}

bool resize_scales_weights(const ResizeGeometry& g, int axis) {
  return !is_copied(g, axis) && !is_plain_linear(g) && (g.antialias || g.exclude_outside);
}

}  // namespace evn
