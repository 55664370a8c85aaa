// Resize and Upsample: y[o...] is sampled from x at the coordinates that ops/resize.h gives, separably per axis.
//   nearest  one element     linear  two per axis     cubic  four per axis (Keys' kernel with cubic_coeff_a)
//   Elements beyond the border repeat it (cubic with exclude_outside: weights outside are dropped, the rest is scaled up).
//   antialias (from 18): where an axis shrinks, the linear or cubic kernel is stretched by 1 / scale.
//   inputs  Resize: x, roi, scales, sizes (opset 10: x, scales); Upsample: x, scales (7: an attribute). An empty list is as none.
//   Output dims are floor(dim * scale), or sizes; from 18 for the listed `axes` only, and keep_aspect_ratio_policy not_larger or
//   not_smaller takes one scale, the smallest or largest of size / dim, and round(dim * scale).
//   Before 11 coordinates are asymmetric, and nearest rounds down where an axis grows and up where it shrinks.
// dtypes: all numbers, of complex ones both parts alike (extrapolation_value is real); integers saturate, and are cut towards zero
// from linear, rounded to even from cubic and with antialias, as in ONNX Runtime or, where that has no integers, in ONNX's own
// evaluator. Failures: not exactly one of scales and sizes, lists of a wrong length, scales that are not positive and finite, sizes
// below 1, unknown words. Tolerance: rtol 1e-4, atol 1e-5; nearest exact.
#include "ops/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/complex_parts.h"
#include "ops/infra/numeric.h"
#include "ops/infra/resize_inputs.h"
#include "ops/infra/round.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

void infer_resize(InferContext& c) {
  resize_attributes(c.node);
  const Shape& x = c.shape(0);
  ConstTensor inputs[4];
  for (int i = 0; i < 4; ++i) {
    if (c.has_input(i)) inputs[i] = known_input(c, i);
  }
  const ResizeInputs given = resize_inputs(c.node, inputs, x.rank());
  Shape out = x;
  if (given.known) {
    ResizeGeometry g;
    out = apply_resize_inputs(c.node, given, x, &g);
  } else {
    for (int i = 0; i < x.rank(); ++i) out[i] = (given.axes >> i & 1u) != 0 ? -1 : x[i];
  }
  c.outputs[0].shape = out;
}

// One input element with its weight.
struct Tap {
  std::int64_t index;
  double weight;
};

double cubic_weight(double distance, double a) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

// The taps of one output position; empty: extrapolated.
void taps_of(const ResizeGeometry& g, int axis, std::int64_t position, std::vector<Tap>* taps) {
  taps->clear();
  const ResizeAxis& a = g.axis[axis];
  if (g.is_identity(axis)) return taps->push_back({position, 1});
  const float coordinate = resize_coordinate(g, axis, position);
  if (resize_is_outside(g, axis, coordinate)) return;
  if (g.mode == ResizeMode::kNearest) return taps->push_back({resize_nearest(g, axis, coordinate), 1});
  if (g.mode == ResizeMode::kLinear && !g.antialias) {
    const LinearTap tap = resize_linear(g, axis, coordinate);
    taps->push_back({tap.low, 1 - static_cast<double>(tap.weight)});
    return taps->push_back({tap.high, tap.weight});
  }
  const double reach = g.mode == ResizeMode::kLinear ? 1 : 2;
  const double stretch = g.antialias ? std::min<double>(a.scale, 1) : 1;
  const auto floor_position = static_cast<std::int64_t>(std::floor(coordinate));
  const auto first = static_cast<std::int64_t>(std::floor(-reach / stretch)) + 1;
  double sum = 0;
  for (std::int64_t i = floor_position + first; i <= floor_position + 1 - first; ++i) {
    cancellation_point();
    const double distance = (static_cast<double>(i) - static_cast<double>(coordinate)) * stretch;
    double weight = g.mode == ResizeMode::kLinear ? std::max(0.0, 1 - std::fabs(distance)) : cubic_weight(distance, g.cubic_a);
    if (g.exclude_outside && (i < 0 || i >= a.input)) weight = 0;
    taps->push_back({std::clamp<std::int64_t>(i, 0, a.input - 1), weight});
    sum += weight;
  }
  if (!g.antialias && !g.exclude_outside) return;
  for (Tap& tap : *taps) {
    cancellation_point();
    tap.weight /= sum;
  }
}

// All taps of an axis: those of position p are [begin[p], begin[p + 1]).
struct AxisTaps {
  std::vector<Tap> taps;
  std::vector<std::size_t> begin;
};

AxisTaps axis_taps(const ResizeGeometry& g, int axis) {
  AxisTaps all;
  std::vector<Tap> one;
  for (std::int64_t p = 0; p < g.axis[axis].output; ++p) {
    cancellation_point();
    all.begin.push_back(all.taps.size());
    taps_of(g, axis, p, &one);
    all.taps.insert(all.taps.end(), one.begin(), one.end());
  }
  all.begin.push_back(all.taps.size());
  return all;
}

// Sum over the taps of the axes from `axis` on. Returns false when one of them has none.
template <typename T>
bool sample(const std::vector<AxisTaps>& axes, const Strides& strides, const std::int64_t* at, std::size_t axis, const T* x,
            double* sum) {
  if (axis == axes.size()) {
    *sum = static_cast<double>(*x);
    return true;
  }
  const std::size_t begin = axes[axis].begin[at[axis]];
  const std::size_t end = axes[axis].begin[at[axis] + 1];
  *sum = 0;
  for (std::size_t i = begin; i < end; ++i) {
    cancellation_point();
    double inner;
    const Tap& tap = axes[axis].taps[i];
    if (!sample(axes, strides, at, axis + 1, x + tap.index * strides.step[axis], &inner)) return false;
    *sum += tap.weight == 0 ? 0 : tap.weight * inner;
  }
  return begin != end;
}

template <typename T>
T from_double(double v, bool rounds = false) {
  if constexpr (std::is_integral_v<T>) return saturate_to<T>(rounds ? round_even(v) : v);
  else return static_cast<T>(v);
}

template <typename T>
void resize(const ReferenceContext& c, const ResizeGeometry& g) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  std::vector<AxisTaps> axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(axis_taps(g, i));
  const Strides strides = dense_strides(x);
  const bool rounds = g.antialias || g.mode == ResizeMode::kCubic;
  const std::int64_t total = out.elements();
  for (std::int64_t i = 0; i < total; ++i) {
    cancellation_point();
    std::int64_t at[kMaxRank] = {};
    std::int64_t rest = i;
    for (int axis = out.rank() - 1; axis >= 0; --axis) {
      at[axis] = rest % out[axis];
      rest /= out[axis];
    }
    if (g.mode == ResizeMode::kNearest) {
      // Without sums, so that 64-bit integers stay exact.
      std::int64_t from = 0;
      bool outside = false;
      for (std::size_t axis = 0; axis < axes.size(); ++axis) {
        const std::size_t begin = axes[axis].begin[at[axis]];
        outside |= begin == axes[axis].begin[at[axis] + 1];
        if (!outside) from += axes[axis].taps[begin].index * strides.step[axis];
      }
      c.output().as<T>()[i] = outside ? from_double<T>(g.extrapolation_value) : c.input(0).as<T>()[from];
    } else {
      double value;
      if (!sample(axes, strides, at, 0, c.input(0).as<T>(), &value)) value = g.extrapolation_value;
      c.output().as<T>()[i] = from_double<T>(value, rounds);
    }
  }
}

void reference_resize(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  ResizeGeometry g = resize_geometry(c.node, c.inputs, c.output().desc.shape);
  if (is_complex(c.input(0).desc.dtype)) {
    for_each_complex_part(c, [&](const ReferenceContext& part, int number) {
      if (number == 1) g.extrapolation_value = 0;
      dispatch_floats(part.input(0).desc.dtype, [&](auto zero) { resize<decltype(zero)>(part, g); });
    });
    return;
  }
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) { resize<decltype(zero)>(c, g); });
}

// In the order of ResizeAttr.
constexpr AttributeSpec kResize[] = {
    string_attribute("mode", "nearest"),
    string_attribute("coordinate_transformation_mode", "half_pixel"),
    float_attribute("cubic_coeff_a", -0.75f),
    int_attribute("exclude_outside", 0),
    float_attribute("extrapolation_value", 0),
    string_attribute("nearest_mode", "round_prefer_floor"),
    int_attribute("antialias", 0),
    optional_attribute("axes", AttributeType::kInts),
    string_attribute("keep_aspect_ratio_policy", "stretch"),
};
constexpr AttributeSpec kUpsample7[] = {string_attribute("mode", "nearest"), required_attribute("scales", AttributeType::kFloats)};

constexpr std::uint32_t kResized = kNumbers | kComplex;

using Attributes = std::span<const AttributeSpec>;

constexpr OpDef resize_row(int since, std::size_t attributes) {
  return {.name = "Resize",
          .since = since,
          .max_inputs = 4,
          .attributes = Attributes(kResize).first(attributes),
          .dtypes = kResized,
          .value_inputs = 0b1110,
          .infer = infer_resize,
          .reference = reference_resize,
          .tolerance = {1e-4, 1e-5}};
}

constexpr OpDef two_inputs_row(const char* name, int since) {
  return {.name = name,
          .since = since,
          .min_inputs = 2,
          .max_inputs = 2,
          .attributes = Attributes(kResize).first(1),
          .dtypes = kResized,
          .value_inputs = 0b10,
          .infer = infer_resize,
          .reference = reference_resize,
          .tolerance = {1e-4, 1e-5}};
}

constexpr OpDef kOps[] = {
    {.name = "Upsample",
     .since = 7,
     .attributes = kUpsample7,
     .dtypes = kResized,
     .infer = infer_resize,
     .reference = reference_resize,
     .tolerance = {1e-4, 1e-5}},
    two_inputs_row("Upsample", 9),
    two_inputs_row("Resize", 10),
    resize_row(11, 6),
    resize_row(18, 9),
};

}  // namespace

ResizeGeometry resize_geometry(const Node& node, std::span<const ConstTensor> inputs, const Shape& y) {
  const Shape& x = inputs[0].desc.shape;
  const ResizeInputs given = resize_inputs(node, inputs, x.rank());
  if (!given.known) fail(EVN_ERROR_INTERNAL, "a resize whose scales are not known");
  ResizeGeometry g = resize_attributes(node);
  const Shape computed = apply_resize_inputs(node, given, x, &g);
  EVN_CHECK(computed == y);
  return g;
}

extern const OpFamily resize_family;
const OpFamily resize_family = {kOps};

}  // namespace evn
