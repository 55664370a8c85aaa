// Momentum, Adagrad, Adam: one step of a training run (Duchi et al., "Adaptive Subgradient Methods", 2011; Kingma and Ba, "Adam",
// 2014) for any number of tensors X with gradients G and what earlier steps have left: V, H, or V and H. With G' = norm_coefficient
// * X + G:
//   Momentum  V = alpha * V + (T > 0 ? beta : 1) * G'; X -= R * V, or with mode nesterov R * (G' + alpha * V)
//   Adagrad   H += G'^2; X -= R / (1 + T * decay_factor) * G' / (sqrt(H) + epsilon)
//   Adam      V = alpha * V + (1 - alpha) * G'; H = beta * H + (1 - beta) * G'^2;
//             X -= (T > 0 ? R * sqrt(1 - beta^T) / (1 - alpha^T) : R) * V / (sqrt(H) + epsilon); X *= 1 - norm_coefficient_post
//   inputs      R, T (scalars), all X, all G, all V, all H;   outputs: all X, all V, all H
// dtypes: floating point, all tensors alike; T int64. Failures: a number of tensors that does not fit, unlike shapes, another mode.
// Tolerance: rtol 1e-5, atol 1e-6.
#include <cmath>

#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr int kFirst = 2;  // input

// How many tensors of each kind: X and G, and the `kept` ones that are inputs and outputs.
std::size_t count_of(const InferContext& c, std::size_t kept) {
  const std::size_t tensors = c.inputs.size() - kFirst;
  if (tensors == 0 || tensors % (2 + kept) != 0)
    fail(EVN_ERROR_INVALID_MODEL, "%zu tensors are no multiple of %zu", tensors, 2 + kept);
  const std::size_t count = tensors / (2 + kept);
  if (c.outputs.size() != count * (1 + kept)) {
    fail(EVN_ERROR_INVALID_MODEL, "%zu outputs where there are %zu", c.outputs.size(), count * (1 + kept));
  }
  return count;
}

void infer_step(InferContext& c, std::size_t kept) {
  require_dtype(c, 0, kFloats);
  require_dtype(c, 1, dtype_bit(DType::kInt64));
  require_scalar(c, 0);
  require_scalar(c, 1);
  require_same_dtype(c, kFirst, static_cast<int>(c.inputs.size()) - 1);
  const std::size_t count = count_of(c, kept);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = c.inputs[kFirst + i % count].shape;
  for (std::size_t i = kFirst; i < c.inputs.size(); ++i) {
    const Shape& x = c.inputs[kFirst + (i - kFirst) % count].shape;
    require_rank(c, static_cast<int>(i), x.rank(), x.rank());
    for (int axis = 0; axis < x.rank(); ++axis) require_dim(c.inputs[i].shape[axis], x[axis], static_cast<int>(i));
  }
}

DType tensor_dtype(const Node&, std::span<const DType> inputs, int) {
  return inputs.size() > kFirst ? inputs[kFirst] : DType::kUndefined;
}

void infer_one(InferContext& c) { infer_step(c, 1); }
void infer_two(InferContext& c) { infer_step(c, 2); }

struct Element {
  double x, g, v, h;
};

// Calls step(rate, updates, &element) for each element. With `kept` 1 the one kept is v.
template <typename Step>
void step_all(const ReferenceContext& c, std::size_t kept, Step&& step) {
  const std::size_t count = (c.inputs.size() - kFirst) / (2 + kept);
  double rate = 0;
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { rate = static_cast<double>(*c.input(0).as<decltype(zero)>()); });
  const auto updates = static_cast<double>(int_at(c.input(1), 0));
  dispatch_floats(c.input(kFirst).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t n = 0; n < count; ++n) {
      cancellation_point();
      const auto in = [&](std::size_t kind, std::int64_t i) {
        return kind < 2 + kept ? static_cast<double>(c.inputs[kFirst + kind * count + n].as<T>()[i]) : 0.0;
      };
      const auto out = [&](std::size_t kind, std::int64_t i, double value) {
        if (kind <= kept && c.outputs[kind * count + n].present()) c.outputs[kind * count + n].as<T>()[i] = static_cast<T>(value);
      };
      for (std::int64_t i = 0; i < c.inputs[kFirst + n].desc.shape.elements(); ++i) {
        cancellation_point();
        Element e{in(0, i), in(1, i), in(2, i), in(3, i)};
        step(rate, updates, &e);
        out(0, i, e.x);
        out(1, i, e.v);
        out(2, i, e.h);
      }
    }
  });
}

double real(const Node& node, int attribute) { return static_cast<double>(attr_float(node, attribute)); }

// ---------------------------------------------------------------------------------------------------- Momentum --

namespace momentum {
enum : int { kAlpha, kBeta, kMode, kNorm };
}

bool is_nesterov(const Node& node) {
  const std::string& mode = attr_string(node, momentum::kMode);
  if (mode != "standard" && mode != "nesterov") fail(EVN_ERROR_INVALID_MODEL, "mode must not be '%s'", mode.c_str());
  return mode == "nesterov";
}

void infer_momentum(InferContext& c) {
  is_nesterov(c.node);
  infer_step(c, 1);
}

void reference_momentum(const ReferenceContext& c) {
  const bool nesterov = is_nesterov(c.node);
  const double alpha = real(c.node, momentum::kAlpha), beta = real(c.node, momentum::kBeta), norm = real(c.node, momentum::kNorm);
  step_all(c, 1, [&](double rate, double updates, Element* e) {
    const double g = norm * e->x + e->g;
    e->v = alpha * e->v + (updates > 0 ? beta : 1) * g;
    e->x -= rate * (nesterov ? g + alpha * e->v : e->v);
  });
}

// ----------------------------------------------------------------------------------------------------- Adagrad --

namespace adagrad {
enum : int { kDecay, kEpsilon, kNorm };
}

void reference_adagrad(const ReferenceContext& c) {
  const double decay = real(c.node, adagrad::kDecay), epsilon = real(c.node, adagrad::kEpsilon),
               norm = real(c.node, adagrad::kNorm);
  step_all(c, 1, [&](double rate, double updates, Element* e) {
    const double g = norm * e->x + e->g;
    e->v += g * g;  // H, the one that is kept
    e->x -= rate / (1 + updates * decay) * g / (std::sqrt(e->v) + epsilon);
  });
}

// -------------------------------------------------------------------------------------------------------- Adam --

namespace adam {
enum : int { kAlpha, kBeta, kEpsilon, kNorm, kNormPost };
}

void reference_adam(const ReferenceContext& c) {
  const double alpha = real(c.node, adam::kAlpha), beta = real(c.node, adam::kBeta), epsilon = real(c.node, adam::kEpsilon);
  const double norm = real(c.node, adam::kNorm), post = real(c.node, adam::kNormPost);
  step_all(c, 2, [&](double rate, double updates, Element* e) {
    const double g = norm * e->x + e->g;
    e->v = alpha * e->v + (1 - alpha) * g;
    e->h = beta * e->h + (1 - beta) * g * g;
    const double adjusted = updates > 0 ? rate * std::sqrt(1 - std::pow(beta, updates)) / (1 - std::pow(alpha, updates)) : rate;
    e->x = (1 - post) * (e->x - adjusted * e->v / (std::sqrt(e->h) + epsilon));
  });
}

constexpr AttributeSpec kMomentum[] = {
    required_attribute("alpha", AttributeType::kFloat), required_attribute("beta", AttributeType::kFloat),
    required_attribute("mode", AttributeType::kString), required_attribute("norm_coefficient", AttributeType::kFloat)};
constexpr AttributeSpec kAdagrad[] = {float_attribute("decay_factor", 0), float_attribute("epsilon", 1e-6f),
                                      float_attribute("norm_coefficient", 0)};
constexpr AttributeSpec kAdam[] = {float_attribute("alpha", 0.9f), float_attribute("beta", 0.999f),
                                   float_attribute("epsilon", 1e-6f), float_attribute("norm_coefficient", 0),
                                   float_attribute("norm_coefficient_post", 0)};
constexpr const char* kDomain = "ai.onnx.preview.training";
constexpr int kAny = kVariadic;
constexpr OpDef kOps[] = {
    {.name = "Momentum",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = kAny,
     .max_outputs = kAny,
     .attributes = kMomentum,
     .dtypes = kFloats,
     .output_dtype = tensor_dtype,
     .infer = infer_momentum,
     .reference = reference_momentum,
     .tolerance = {1e-5, 1e-6}},
    {.name = "Adagrad",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = kAny,
     .max_outputs = kAny,
     .attributes = kAdagrad,
     .dtypes = kFloats,
     .output_dtype = tensor_dtype,
     .infer = infer_one,
     .reference = reference_adagrad,
     .tolerance = {1e-5, 1e-6}},
    {.name = "Adam",
     .domain = kDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = kAny,
     .max_outputs = kAny,
     .attributes = kAdam,
     .dtypes = kFloats,
     .output_dtype = tensor_dtype,
     .infer = infer_two,
     .reference = reference_adam,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily optimizers_family;
const OpFamily optimizers_family = {kOps};

}  // namespace evn
