// The derivatives of activations: dx = slope * dy, element by element, where the slope is computed of the activation's result y
// (Relu, Sigmoid, Tanh) or of its input x (HardSwish, Gelu with its attribute, Erf). At corners it is that of the left side, as
// graph/gradient/rules_elementwise.cc says. Not operators of the format (ops/gradient.h).
//   inputs y or x, dy of the same shape; output dx
// dtypes: floating point. Failures: unlike shapes. Tolerance: rtol 1e-5, atol 1e-6.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"

namespace evn {
namespace {

void infer_gradient(InferContext& c) {
  require_same_dtype(c, 0, 1);
  const Shape& x = c.shape(0);
  require_rank(c, 1, x.rank(), x.rank());
  for (int i = 0; i < x.rank(); ++i) require_dim(c.shape(1)[i], x[i], 1);
  c.outputs[0].shape = x;
}

bool is_tanh_form(const Node& node) {
  const std::string& form = attr_string(node, 0);
  if (form != "none" && form != "tanh") fail(EVN_ERROR_INVALID_MODEL, "approximate must not be '%.32s'", form.c_str());
  return form == "tanh";
}

void infer_gelu_gradient(InferContext& c) {
  is_tanh_form(c.node);
  infer_gradient(c);
}

template <typename F>
void map_slopes(const ReferenceContext& c, F slope) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *v = c.input(0).as<T>(), *dy = c.input(1).as<T>();
    for (std::int64_t i = 0; i < c.output().desc.shape.elements(); ++i) {
      cancellation_point(kFunctionWork);
      c.output().as<T>()[i] = static_cast<T>(slope(static_cast<double>(v[i]), static_cast<double>(dy[i])));
    }
  });
}

void reference_relu(const ReferenceContext& c) {
  map_slopes(c, [](double y, double dy) { return y > 0 ? dy : 0; });
}
void reference_sigmoid(const ReferenceContext& c) {
  map_slopes(c, [](double y, double dy) { return dy * (y - y * y); });
}
void reference_tanh(const ReferenceContext& c) {
  map_slopes(c, [](double y, double dy) { return dy * (1 - y * y); });
}
void reference_hard_swish(const ReferenceContext& c) {
  map_slopes(c, [](double x, double dy) { return x > -3 && x < 3 ? dy * (x / 3 + 0.5) : x >= 3 ? dy : 0; });
}
void reference_erf(const ReferenceContext& c) {
  map_slopes(c, [](double x, double dy) { return dy * 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); });
}

void reference_gelu(const ReferenceContext& c) {
  if (!is_tanh_form(c.node)) {
    return map_slopes(c, [](double x, double dy) {
      const double phi = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return dy * (0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * phi);
    });
  }
  map_slopes(c, [](double x, double dy) {
    constexpr double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, a = 0.044715;
    x = std::clamp(x, -40.0, 40.0);  // beyond, the slope is 0 or 1, and its factors would overflow
    const double u = 2 * k * (x + a * x * x * x);
    const double below = 1 / (1 + std::exp(-u)), above = 1 / (1 + std::exp(u));
    return dy * below * (1 + 2 * x * above * k * (1 + 3 * a * x * x));
  });
}

constexpr AttributeSpec kApproximate[] = {string_attribute("approximate", "none")};

constexpr OpDef row(const char* name, void (*reference)(const ReferenceContext&)) {
  return {.name = name,
          .domain = kInternalDomain,
          .since = 1,
          .min_inputs = 2,
          .max_inputs = 2,
          .dtypes = kFloats,
          .flags = kOpElementwise,
          .infer = infer_gradient,
          .reference = reference,
          .tolerance = {1e-5, 1e-6}};
}

constexpr OpDef gelu_row() {
  OpDef op = row(kGeluGradient, reference_gelu);
  op.attributes = kApproximate;
  op.infer = infer_gelu_gradient;
  return op;
}

constexpr OpDef kOps[] = {
    row(kReluGradient, reference_relu), row(kSigmoidGradient, reference_sigmoid),
    row(kTanhGradient, reference_tanh), row(kHardSwishGradient, reference_hard_swish),
    row(kErfGradient, reference_erf),   gelu_row(),
};

}  // namespace

extern const OpFamily activation_gradient_family;
const OpFamily activation_gradient_family = {kOps};

}  // namespace evn
