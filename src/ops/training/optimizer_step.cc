// OptimizerStep: one step of an optimizer over any number of tensors, as PyTorch's torch.optim computes it.
//   inputs      rates [8]: learning rate, weight decay, what gradients are multiplied by, what they are clamped to afterwards (0:
//               not), the number of the step from 1 on, and three that are reserved; apply (one element): without it, all outputs
//               are what the inputs are; all parameters X, all their gradients G, all kept tensors of the first kind, of the second
//   outputs     all X, all kept ones in the order of the inputs
//   attributes  kind (sgd, adam, adamw, adagrad, rmsprop), momentum, dampening, beta1, beta2, epsilon, alpha, lr_decay,
//               nesterov, centered
// With g = clamp(scale * G), to which weight_decay * X is added but for adamw, and step t:
//   sgd      V = t == 1 ? g : momentum * V + (1 - dampening) * g; X -= rate * (nesterov ? g + momentum * V : V); without momentum
//            nothing is kept and V is g
//   adam     M += (1 - beta1) * (g - M); V = beta2 * V + (1 - beta2) * g^2;
//            X -= rate / (1 - beta1^t) * M / (sqrt(V) / sqrt(1 - beta2^t) + epsilon)
//   adamw    the same after X *= 1 - rate * weight_decay
//   adagrad  S += g^2; X -= rate / (1 + (t - 1) * lr_decay) * g / (sqrt(S) + epsilon)
//   rmsprop  S = alpha * S + (1 - alpha) * g^2; A += (1 - alpha) * (g - A) where centered, else A is 0;
//            u = g / (sqrt(max(S - A^2, 0)) + epsilon); with momentum V = momentum * V + u, else V is u; X -= rate * V; kept are S,
//            V, A
// GradientNorm: the norm of any number of tensors whose elements are multiplied by one factor, as gradients of a scaled loss are.
//   inputs      scale (float32, one element); all tensors
//   outputs     sqrt(the sum of the squares of scale * x over all elements x) (float32); true if all elements are finite (bool)
// The norm is finite wherever float32 has it: the sum of squares may be larger than any float32.
// Not operators of the format (ops/gradient.h).
// dtypes: rates float32, apply bool; tensors floating point, all alike. Failures: a number of tensors that does not fit, unlike
// shapes, another kind, nesterov without momentum or with dampening. Tolerance: rtol 1e-5, atol 1e-6.
#include "ops/training/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr const char* kKinds[] = {"sgd", "adam", "adamw", "adagrad", "rmsprop"};

// The decimal that was meant by a float: of 0.999f, 1 - beta would have few digits of those that 0.999 gives.
double decimal_of(float x) {
  const auto wide = static_cast<double>(x);
  for (double unit = 10; unit <= 1e9; unit *= 10) {
    const double decimal = std::round(wide * unit) / unit;
    if (static_cast<float>(decimal) == x) return decimal;
  }
  return wide;
}

OptimizerKind kind_of(const Node& node) {
  const std::string& kind = attr_string(node, OptimizerAttr::kKind);
  const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (found == std::end(kKinds)) fail(EVN_ERROR_INVALID_MODEL, "kind must not be '%.32s'", kind.c_str());
  return static_cast<OptimizerKind>(found - std::begin(kKinds));
}

}  // namespace

std::size_t optimizer_kept(const Node& node) {
  const std::size_t momentum = attr_float(node, OptimizerAttr::kMomentum) != 0 ? 1 : 0;
  switch (kind_of(node)) {
    case OptimizerKind::kSgd: return momentum;
    case OptimizerKind::kAdagrad: return 1;
    case OptimizerKind::kRmsprop: return 1 + momentum + (attr_int(node, OptimizerAttr::kCentered) != 0 ? 1 : 0);
    default: return 2;
  }
}

OptimizerRule optimizer_rule(const Node& node) {
  using Attr = OptimizerAttr;
  const auto real = [&](int attribute) { return decimal_of(attr_float(node, attribute)); };
  OptimizerRule r{kind_of(node),
                  optimizer_kept(node),
                  real(Attr::kMomentum),
                  real(Attr::kDampening),
                  real(Attr::kBeta1),
                  real(Attr::kBeta2),
                  real(Attr::kEpsilon),
                  real(Attr::kAlpha),
                  real(Attr::kRateDecay),
                  attr_int(node, Attr::kNesterov) != 0,
                  attr_int(node, Attr::kCentered) != 0};
  if (r.kind == OptimizerKind::kSgd && r.nesterov && (r.momentum <= 0 || r.dampening != 0))
    fail(EVN_ERROR_INVALID_MODEL, "nesterov asks for momentum and no dampening");
  return r;
}

OptimizerNumbers optimizer_numbers(const OptimizerRule& rule, const float* rates) {
  const auto rate_at = [&](int i) { return static_cast<double>(rates[i]); };
  const double step = rate_at(OptimizerRate::kStep);
  OptimizerNumbers n{.rate = rate_at(OptimizerRate::kLearning),
                     .decay = 1,
                     .weight_decay = rate_at(OptimizerRate::kWeightDecay),
                     .scale = rate_at(OptimizerRate::kGradientScale),
                     .clip = rate_at(OptimizerRate::kClip),
                     .second = 1,
                     .first = step <= 1};
  if (rule.kind == OptimizerKind::kAdamW) {
    n.decay = 1 - n.rate * n.weight_decay;
    n.weight_decay = 0;
  }
  if (rule.kind == OptimizerKind::kAdam || rule.kind == OptimizerKind::kAdamW) {
    n.rate /= 1 - std::pow(rule.beta1, step);
    n.second = 1 / std::sqrt(1 - std::pow(rule.beta2, step));
  } else if (rule.kind == OptimizerKind::kAdagrad) {
    n.rate /= 1 + (step - 1) * rule.rate_decay;
  }
  return n;
}

namespace {

// --------------------------------------------------------------------------------------------------------- the step --

constexpr int kFirst = OptimizerInput::kFirst;

void infer_step(InferContext& c) {
  const OptimizerRule rule = optimizer_rule(c.node);
  require_dtype(c, OptimizerInput::kRates, dtype_bit(DType::kFloat32));
  require_vector(c, OptimizerInput::kRates, OptimizerRate::kCount);
  require_dtype(c, OptimizerInput::kApply, dtype_bit(DType::kBool));
  require_scalar(c, OptimizerInput::kApply);
  const std::size_t tensors = c.inputs.size() - kFirst, kinds = 2 + rule.kept, count = tensors / kinds;
  if (tensors == 0 || tensors % kinds != 0) fail(EVN_ERROR_INVALID_MODEL, "%zu tensors are no multiple of %zu", tensors, kinds);
  if (c.outputs.size() != count * (kinds - 1))
    fail(EVN_ERROR_INVALID_MODEL, "%zu outputs where there are %zu", c.outputs.size(), count * (kinds - 1));
  for (std::size_t i = kFirst; i < c.inputs.size(); ++i) require_input(c, static_cast<int>(i));
  require_dtype(c, kFirst, kFloats);
  require_same_dtype(c, kFirst, static_cast<int>(c.inputs.size()) - 1);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = c.inputs[kFirst + i % count].shape;
  for (std::size_t i = kFirst + count; i < c.inputs.size(); ++i) {
    const Shape& x = c.inputs[kFirst + (i - kFirst) % count].shape;
    require_rank(c, static_cast<int>(i), x.rank(), x.rank());
    for (int axis = 0; axis < x.rank(); ++axis) require_dim(c.inputs[i].shape[axis], x[axis], static_cast<int>(i));
  }
}

DType tensor_dtype(const Node&, std::span<const DType> inputs, int) {
  return inputs.size() > kFirst ? inputs[kFirst] : DType::kUndefined;
}

// One element; `kept` in the order of the inputs.
struct Element {
  double x, g;
  double kept[3] = {};
};

double descent(const OptimizerRule& r, const OptimizerNumbers& n, double g, double* kept);

void step_element(const OptimizerRule& r, const OptimizerNumbers& n, Element* e) {
  double g = e->g * n.scale;
  if (n.clip > 0 && std::fabs(g) > n.clip) g = g < 0 ? -n.clip : n.clip;
  g += n.weight_decay * e->x;
  e->x = e->x * n.decay - n.rate * descent(r, n, g, e->kept);
}

// What the rate multiplies.
double descent(const OptimizerRule& r, const OptimizerNumbers& n, double g, double* kept) {
  switch (r.kind) {
    case OptimizerKind::kSgd: {
      if (r.momentum == 0) return g;
      kept[0] = n.first ? g : r.momentum * kept[0] + (1 - r.dampening) * g;
      return r.nesterov ? g + r.momentum * kept[0] : kept[0];
    }
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: {
      kept[0] += (1 - r.beta1) * (g - kept[0]);
      kept[1] = r.beta2 * kept[1] + (1 - r.beta2) * g * g;
      return kept[0] / (std::sqrt(kept[1]) * n.second + r.epsilon);
    }
    case OptimizerKind::kAdagrad: {
      kept[0] += g * g;
      return g / (std::sqrt(kept[0]) + r.epsilon);
    }
    case OptimizerKind::kRmsprop: {
      const int average = r.momentum != 0 ? 2 : 1;
      kept[0] = r.alpha * kept[0] + (1 - r.alpha) * g * g;
      double variance = kept[0];
      if (r.centered) {
        kept[average] += (1 - r.alpha) * (g - kept[average]);
        variance = std::max(0.0, variance - kept[average] * kept[average]);
      }
      const double update = g / (std::sqrt(variance) + r.epsilon);
      if (r.momentum == 0) return update;
      return kept[1] = r.momentum * kept[1] + update;
    }
  }
  return g;
}

template <typename T>
void step_tensor(const ReferenceContext& c, const OptimizerRule& rule, std::size_t count, std::size_t tensor) {
  const OptimizerNumbers numbers = optimizer_numbers(rule, c.input(OptimizerInput::kRates).as<float>());
  const auto in = [&](std::size_t kind) { return c.inputs[kFirst + kind * count + tensor].as<T>(); };
  each_element(c.inputs[kFirst + tensor].desc.shape.elements(), [&](std::int64_t i) {
    Element e{static_cast<double>(in(0)[i]), static_cast<double>(in(1)[i])};
    for (std::size_t k = 0; k < rule.kept; ++k) e.kept[k] = static_cast<double>(in(2 + k)[i]);
    step_element(rule, numbers, &e);
    for (std::size_t k = 0; k <= rule.kept; ++k) {
      const MutableTensor& to = c.outputs[k * count + tensor];
      if (to.present()) to.as<T>()[i] = static_cast<T>(k == 0 ? e.x : e.kept[k - 1]);
    }
  });
}

// A part is a parameter with what belongs to it.
std::int64_t step_parts(const ReferenceContext& c) {
  return static_cast<std::int64_t>(optimizer_parameters(optimizer_kept(c.node), c.inputs.size()));
}

void reference_step(const ReferenceContext& c) {
  const OptimizerRule rule = optimizer_rule(c.node);
  const std::size_t count = optimizer_parameters(rule.kept, c.inputs.size());
  const bool applies = *c.input(OptimizerInput::kApply).as<std::uint8_t>() != 0;
  for (auto tensor = static_cast<std::size_t>(c.begin); tensor < count && static_cast<std::int64_t>(tensor) < c.end; ++tensor) {
    cancellation_point();
    for (std::size_t k = 0; !applies && k <= rule.kept; ++k) {
      const std::size_t to = k * count + tensor;
      const int from = optimizer_input_of(rule.kept, c.inputs.size(), static_cast<int>(to));
      if (c.outputs[to].present()) copy_all(c.input(from), c.outputs[to]);
    }
    if (!applies) continue;
    dispatch_floats(c.inputs[kFirst].desc.dtype, [&](auto zero) { step_tensor<decltype(zero)>(c, rule, count, tensor); });
  }
}

// ----------------------------------------------------------------------------------------------------- GradientNorm --

void infer_norm(InferContext& c) {
  for (std::size_t i = 0; i < c.inputs.size(); ++i) require_input(c, static_cast<int>(i));
  require_dtype(c, GradientNormInput::kScale, dtype_bit(DType::kFloat32));
  require_scalar(c, GradientNormInput::kScale);
  require_dtype(c, GradientNormInput::kFirst, kFloats);
  require_same_dtype(c, GradientNormInput::kFirst, static_cast<int>(c.inputs.size()) - 1);
  for (TensorDesc& output : c.outputs) output.shape = Shape{};
}

DType norm_dtype(const Node&, std::span<const DType>, int output) { return output == 0 ? DType::kFloat32 : DType::kBool; }

void reference_norm(const ReferenceContext& c) {
  double sum = 0;
  bool finite = true;
  for (const ConstTensor& t : c.inputs.subspan(GradientNormInput::kFirst)) {
    cancellation_point();
    dispatch_floats(t.desc.dtype, [&](auto zero) {
      const auto* x = t.as<decltype(zero)>();
      each_element(t.desc.shape.elements(), [&](std::int64_t i) {
        const auto v = static_cast<double>(x[i]);
        sum += v * v;
        finite = finite && std::isfinite(v);
      });
    });
  }
  const auto scale = static_cast<double>(*c.input(GradientNormInput::kScale).as<float>());
  if (c.output().present()) *c.output().as<float>() = static_cast<float>(std::sqrt(sum * scale * scale));
  if (c.outputs.size() > 1 && c.output(1).present()) *c.output(1).as<std::uint8_t>() = finite ? 1 : 0;
}

constexpr AttributeSpec kAttributes[] = {
    required_attribute("kind", AttributeType::kString),
    float_attribute("momentum", 0),
    float_attribute("dampening", 0),
    float_attribute("beta1", 0.9f),
    float_attribute("beta2", 0.999f),
    float_attribute("epsilon", 1e-8f),
    float_attribute("alpha", 0.99f),
    float_attribute("lr_decay", 0),
    int_attribute("nesterov", 0),
    int_attribute("centered", 0),
};
constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr OpDef kOps[] = {
    {.name = kOptimizerStep,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = kFirst + 2,
     .max_inputs = kVariadic,
     .max_outputs = kVariadic,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kFloat32),
     .output_dtype = tensor_dtype,
     .infer = infer_step,
     .reference = reference_step,
     .tolerance = kNear,
     .parts = step_parts},
    {.name = kGradientNorm,
     .domain = kInternalDomain,
     .since = 1,
     .min_inputs = GradientNormInput::kFirst + 1,
     .max_inputs = kVariadic,
     .max_outputs = 2,
     .dtypes = dtype_bit(DType::kFloat32),
     .flags = kOpAnyRank,
     .output_dtype = norm_dtype,
     .infer = infer_norm,
     .reference = reference_norm,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily optimizer_step_family;
const OpFamily optimizer_step_family = {kOps};

}  // namespace evn
