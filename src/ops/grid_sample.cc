// GridSample: y[n, c, o...] = x[n, c, ...] read at the place that grid[n, o..., :] gives: one coordinate for each spatial axis, the
// last axis first, from -1 to 1 over the image (align_corners: between the centers of its corner elements, else over its edges).
//   mode          linear (bilinear before 20), nearest (ties to even), cubic (bicubic; a = -0.75)
//   padding_mode  outside the image: zeros, border (the nearest element), reflection (at the same edges or centers)
// 1, 2 or 3 spatial axes. A coordinate that is no number lies outside.
// dtypes: floating point, both alike; x may be complex, with the grid of the type of its parts. Failures: dims that do not fit,
// unknown modes. Tolerance: rtol 1e-4, atol 1e-5.
#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/complex_parts.h"
#include "ops/infra/numeric.h"
#include "ops/infra/round.h"
#include "ops/infra/window.h"

namespace evn {
namespace {

enum : int { kAlign, kMode, kPadding };
enum class Mode { kLinear, kNearest, kCubic };
enum class Padding { kZeros, kBorder, kReflection };

Mode mode_of(const Node& node) {
  const std::string& word = attr_string(node, kMode);
  const bool old = node.op->since < 20;
  if (word == (old ? "bilinear" : "linear")) return Mode::kLinear;
  if (word == "nearest") return Mode::kNearest;
  if (word == (old ? "bicubic" : "cubic")) return Mode::kCubic;
  fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", word.c_str());
}

Padding padding_of(const Node& node) {
  const std::string& word = attr_string(node, kPadding);
  if (word == "zeros") return Padding::kZeros;
  if (word == "border") return Padding::kBorder;
  if (word == "reflection") return Padding::kReflection;
  fail(EVN_ERROR_INVALID_MODEL, "padding_mode must not be '%s'", word.c_str());
}

void infer_grid_sample(InferContext& c) {
  if (is_complex(c.inputs[0].dtype)) {
    require_dtype(c, 1, dtype_bit(complex_part(c.inputs[0].dtype)));
  } else {
    require_same_dtype(c, 0, 1);
  }
  require_rank(c, 0, 3);
  const Shape& x = c.shape(0);
  if (x.rank() > 2 + kMaxSpatial) fail(EVN_ERROR_UNSUPPORTED, "GridSample over more than %d spatial axes", kMaxSpatial);
  require_rank(c, 1, x.rank(), x.rank());
  require_dim(c.shape(1)[0], x[0], 1);
  require_dim(c.shape(1)[x.rank() - 1], x.rank() - 2, 1);
  mode_of(c.node);
  padding_of(c.node);
  Shape out = {x[0], x[1]};
  for (int i = 1; i + 1 < x.rank(); ++i) out.push_back(c.shape(1)[i]);
  c.outputs[0].shape = out;
}

// The elements of one axis that a place reads, and their weights. An index of -1 reads 0.
struct Taps {
  int count = 0;
  std::int64_t index[4] = {};
  double weight[4] = {};
};

double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double distance = x < low ? low - x : x > high ? x - high : 0;
  if (distance == 0) return x;
  const double turns = std::floor(distance / range);
  const double rest = distance - turns * range;
  const bool back = std::fmod(turns, 2) == 0;
  return (x < low) == back ? low + rest : high - rest;
}

// The index of the element that stands for position `i`.
std::int64_t padded(double i, std::int64_t size, Padding padding, double low, double high) {
  const auto last = static_cast<double>(size - 1);
  if (i >= 0 && i <= last) return static_cast<std::int64_t>(i);
  if (padding == Padding::kZeros) return -1;
  const double inside = padding == Padding::kBorder ? i : reflect(i, low, high);
  return static_cast<std::int64_t>(std::clamp(inside, 0.0, last));
}

double cubic_weight(double distance) {
  constexpr double a = -0.75;
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Taps taps_of(float coordinate, std::int64_t size, Mode mode, Padding padding, bool align) {
  Taps taps;
  const auto length = static_cast<float>(size);
  // In float32, so that places that lie between two elements do so everywhere.
  const float place = align ? (coordinate + 1) / 2.0f * (length - 1) : ((coordinate + 1) * length - 1) / 2.0f;
  const double low = align ? 0 : -0.5;
  const double high = static_cast<double>(size) - (align ? 1 : 0.5);
  double x = place;
  if (!std::isfinite(x)) {
    if (padding != Padding::kBorder || std::isnan(x)) return taps;
    x = x < 0 ? low : high;
  }
  if (mode == Mode::kNearest) x = round_even(x);
  if (x < low || x > high) {
    if (padding == Padding::kBorder) x = std::clamp(x, 0.0, static_cast<double>(size - 1));
    if (padding == Padding::kReflection) x = reflect(x, low, high);
  }
  const double first = mode == Mode::kNearest ? x : std::floor(x) - (mode == Mode::kCubic ? 1 : 0);
  taps.count = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 2 : 4;
  for (int i = 0; i < taps.count; ++i) {
    const double distance = std::fabs(x - (first + i));
    taps.index[i] = padded(first + i, size, padding, low, high);
    taps.weight[i] = mode == Mode::kNearest ? 1 : mode == Mode::kLinear ? 1 - distance : cubic_weight(distance);
  }
  return taps;
}

template <typename T>
double read(const T* plane, const std::int64_t (&size)[kMaxSpatial], const Taps (&taps)[kMaxSpatial]) {
  double sum = 0;
  for (int i = 0; i < taps[0].count; ++i) {
    for (int j = 0; j < taps[1].count; ++j) {
      for (int k = 0; k < taps[2].count; ++k) {
        if (taps[0].index[i] < 0 || taps[1].index[j] < 0 || taps[2].index[k] < 0) continue;
        const std::int64_t at = (taps[0].index[i] * size[1] + taps[1].index[j]) * size[2] + taps[2].index[k];
        sum += taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k] * static_cast<double>(plane[at]);
      }
    }
  }
  return sum;
}

template <typename T>
void grid_sample(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axes = x.rank() - 2;
  const Mode mode = mode_of(c.node);
  const Padding padding = padding_of(c.node);
  const bool align = attr_int(c.node, kAlign) != 0;
  std::int64_t size[kMaxSpatial] = {1, 1, 1};
  for (int i = 0; i < axes; ++i) size[kMaxSpatial - axes + i] = x[2 + i];
  const std::int64_t plane = x.elements(2, x.rank());
  const std::int64_t places = c.input(1).desc.shape.elements(1, axes + 1);
  for (std::int64_t i = 0; i < x[0] * places; ++i) {
    cancellation_point();
    const T* coordinates = c.input(1).as<T>() + i * axes;
    Taps taps[kMaxSpatial];
    for (int axis = 0; axis < kMaxSpatial; ++axis) {
      const int from_end = kMaxSpatial - 1 - axis;
      if (from_end < axes) {
        taps[axis] = taps_of(static_cast<float>(coordinates[from_end]), size[axis], mode, padding, align);
      } else {
        taps[axis].count = 1;
        taps[axis].weight[0] = 1;
      }
    }
    for (std::int64_t channel = 0; channel < x[1]; ++channel) {
      cancellation_point();
      const std::int64_t image = i / places * x[1] + channel;
      c.output().as<T>()[image * places + i % places] = static_cast<T>(read(c.input(0).as<T>() + image * plane, size, taps));
    }
  }
}

void reference_grid_sample(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  if (c.output().desc.shape.elements() == 0) return;
  if (x.elements(2, x.rank()) == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "an image without elements");
  if (is_complex(c.input(0).desc.dtype)) {
    for_each_complex_part(c, [](const ReferenceContext& part, int) {
      dispatch_floats(part.input(0).desc.dtype, [&](auto zero) { grid_sample<decltype(zero)>(part); });
    });
    return;
  }
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { grid_sample<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttributes16[] = {int_attribute("align_corners", 0), string_attribute("mode", "bilinear"),
                                           string_attribute("padding_mode", "zeros")};
constexpr AttributeSpec kAttributes20[] = {int_attribute("align_corners", 0), string_attribute("mode", "linear"),
                                           string_attribute("padding_mode", "zeros")};
constexpr OpDef row(int since, std::span<const AttributeSpec> attributes) {
  return {.name = "GridSample",
          .since = since,
          .min_inputs = 2,
          .max_inputs = 2,
          .attributes = attributes,
          .dtypes = kFloats | kComplex,
          .infer = infer_grid_sample,
          .reference = reference_grid_sample,
          .tolerance = {1e-4, 1e-5}};
}
constexpr OpDef kOps[] = {row(16, kAttributes16), row(20, kAttributes20)};

}  // namespace

extern const OpFamily grid_sample_family;
const OpFamily grid_sample_family = {kOps};

}  // namespace evn
