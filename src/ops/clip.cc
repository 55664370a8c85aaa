// Clip: y = min(max(x, low), high); where low > high, y = high. NaN gives NaN.
// Before opset 11 the bounds are float attributes, later optional scalar inputs of x's dtype; a bound that is absent does not bind.
// dtypes: all numbers (before 11 floating point). Failures: bounds that are no scalars or of another dtype. Exact.
#include "ops/clip.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_clip(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  require_scalar(c, 1);
  require_scalar(c, 2);
  infer_same_shape(c);
}

template <typename T>
void clip(const ReferenceContext& c, T low, T high) {
  const std::int64_t count = c.output().desc.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    const T x = c.input(0).as<T>()[i];
    const T above = x < low ? low : x;
    c.output().as<T>()[i] = above > high ? high : above;
  }
}

void reference_clip_attributes(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    clip<T>(c, attr_float(c.node, ClipAttr::kMin), attr_float(c.node, ClipAttr::kMax));
  });
}

void reference_clip(const ReferenceContext& c) {
  dispatch_numbers(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    clip<T>(c, c.has_input(1) ? *c.input(1).as<T>() : lowest, c.has_input(2) ? *c.input(2).as<T>() : highest);
  });
}

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr AttributeSpec kBounds[] = {float_attribute("min", -kLargest), float_attribute("max", kLargest)};

constexpr OpDef kOps[] = {
    {.name = "Clip",
     .since = 6,
     .attributes = kBounds,
     .dtypes = kFloats,
     .flags = kOpElementwise,
     .infer = infer_clip,
     .reference = reference_clip_attributes},
    {.name = "Clip",
     .since = 11,
     .max_inputs = 3,
     .dtypes = kNumbers,
     .flags = kOpElementwise,
     .infer = infer_clip,
     .reference = reference_clip},
};

}  // namespace

extern const OpFamily clip_family;
const OpFamily clip_family = {kOps};

}  // namespace evn
