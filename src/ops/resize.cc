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

ResizeTaps resize_axis_taps(const ResizeGeometry& g, int axis) {
  ResizeTaps all;
  for (std::int64_t p = 0; p < g.axis[axis].output; ++p) {
    cancellation_point();
    all.begin.push_back(all.taps.size());
    const ResizeReach reach = resize_reach(g, axis, p);
    double sum = 0;
    for (std::int64_t i = 0; i < reach.count; ++i) {
      cancellation_point();
      all.taps.push_back(resize_tap(g, axis, reach, i));
      sum += all.taps.back().weight;
    }
    for (std::size_t i = all.begin.back(); i < all.taps.size() && resize_scales_weights(g, axis); ++i) {
      cancellation_point();
      all.taps[i].weight /= sum;
    }
  }
  all.begin.push_back(all.taps.size());
  return all;
}

// In the order of ResizeAttr.
constexpr AttributeSpec kResizeAttributes[kResizeAttributeCount] = {
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

namespace {

// Elements as doubles.
struct Elements {
  double (*read)(const void* x, std::int64_t i);
  void (*write)(void* y, std::int64_t i, double value, bool rounds);
};

template <typename T>
constexpr Elements kElements = {
    [](const void* x, std::int64_t i) { return static_cast<double>(static_cast<const T*>(x)[i]); },
    [](void* y, std::int64_t i, double value, bool rounds) {
      T& to = static_cast<T*>(y)[i];
      if constexpr (std::is_integral_v<T>) to = saturate_to<T>(rounds ? round_even(value) : value);
      else to = static_cast<T>(value);
    },
};

// An output position's place in the input, axis by axis.
struct Sampler {
  std::vector<ResizeTaps> axes;
  Strides strides;
  const void* x;
  Elements elements;

  // Sum over the taps of the axes from `axis` on. Returns false when one of them has none.
  bool sample(const std::int64_t* at, std::size_t axis, std::int64_t from, double* sum) const {
    if (axis == axes.size()) {
      *sum = elements.read(x, from);
      return true;
    }
    const std::size_t begin = axes[axis].begin[at[axis]];
    const std::size_t end = axes[axis].begin[at[axis] + 1];
    *sum = 0;
    for (std::size_t i = begin; i < end; ++i) {
      cancellation_point();
      double inner;
      const ResizeTap& tap = axes[axis].taps[i];
      if (!sample(at, axis + 1, from + tap.index * strides.step[axis], &inner)) return false;
      *sum += tap.weight == 0 ? 0 : tap.weight * inner;
    }
    return begin != end;
  }
};

void resize(const ReferenceContext& c, const ResizeGeometry& g) {
  const Shape& x = c.input(0).desc.shape;
  const Shape& out = c.output().desc.shape;
  Sampler sampler;
  for (int i = 0; i < x.rank(); ++i) sampler.axes.push_back(resize_axis_taps(g, i));
  sampler.strides = dense_strides(x);
  sampler.x = c.input(0).data;
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) { sampler.elements = kElements<decltype(zero)>; });
  const bool rounds = g.antialias || g.mode == ResizeMode::kCubic;
  for (std::int64_t i = c.begin; i < std::min(c.end, out.elements()); ++i) {
    cancellation_point();
    std::int64_t at[kMaxRank] = {};
    std::int64_t rest = i;
    for (int axis = out.rank() - 1; axis >= 0; --axis) {
      at[axis] = rest % out[axis];
      rest /= out[axis];
    }
    double value = g.extrapolation_value;
    if (g.mode == ResizeMode::kNearest) {
      // Without sums, so that 64-bit integers stay exact.
      std::int64_t from = 0;
      bool outside = false;
      for (std::size_t axis = 0; axis < sampler.axes.size(); ++axis) {
        const ResizeTaps& taps = sampler.axes[axis];
        const std::size_t begin = taps.begin[at[axis]];
        outside |= begin == taps.begin[at[axis] + 1];
        if (!outside) from += taps.taps[begin].index * sampler.strides.step[axis];
      }
      if (!outside) {
        with_width(c.input(0).desc.dtype, [&](auto width) { move_element<width()>(c.output().data, i, sampler.x, from); });
        continue;
      }
    } else if (double sum; sampler.sample(at, 0, 0, &sum)) {
      value = sum;
    }
    sampler.elements.write(c.output().data, i, value, rounds && g.mode != ResizeMode::kNearest);
  }
}

void reference_resize(const ReferenceContext& c) {
  if (c.output().desc.shape.elements() == 0) return;
  ResizeGeometry g = resize_geometry(c.node, c.inputs, c.output().desc.shape);
  if (is_complex(c.input(0).desc.dtype)) {
    for_each_complex_part(c, [&](const ReferenceContext& part, int number) {
      if (number == 1) g.extrapolation_value = 0;
      resize(part, g);
    });
    return;
  }
  resize(c, g);
}

// Complex numbers are resized as two tensors, one after the other, and cannot be cut.
std::int64_t parts_of_resize(const ReferenceContext& c) {
  return is_complex(c.input(0).desc.dtype) ? 1 : c.output().desc.shape.elements();
}

constexpr AttributeSpec kUpsample7[] = {string_attribute("mode", "nearest"), required_attribute("scales", AttributeType::kFloats)};

constexpr std::uint32_t kResized = kNumbers | kComplex;

using Attributes = std::span<const AttributeSpec>;

constexpr OpDef resize_row(int since, std::size_t attributes) {
  return {.name = "Resize",
          .since = since,
          .max_inputs = 4,
          .attributes = Attributes(kResizeAttributes).first(attributes),
          .dtypes = kResized,
          .value_inputs = 0b1110,
          .infer = infer_resize,
          .reference = reference_resize,
          .tolerance = {1e-4, 1e-5},
          .parts = parts_of_resize};
}

constexpr OpDef two_inputs_row(const char* name, int since) {
  return {.name = name,
          .since = since,
          .min_inputs = 2,
          .max_inputs = 2,
          .attributes = Attributes(kResizeAttributes).first(1),
          .dtypes = kResized,
          .value_inputs = 0b10,
          .infer = infer_resize,
          .reference = reference_resize,
          .tolerance = {1e-4, 1e-5},
          .parts = parts_of_resize};
}

constexpr OpDef kOps[] = {
    {.name = "Upsample",
     .since = 7,
     .attributes = kUpsample7,
     .dtypes = kResized,
     .infer = infer_resize,
     .reference = reference_resize,
     .tolerance = {1e-4, 1e-5},
     .parts = parts_of_resize},
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
