// NegativeLogLikelihoodLoss: of x [N, C, ...] and classes target [N, ...]: -x[n, target, ...] * weight[target];
// SoftmaxCrossEntropyLoss: the same of the LogSoftmax of x along axis 1, which is output 1 when wanted.
// reduction: none, sum, or mean (of the weights' sum; without weights each is 1). Where target is ignore_index the weight is 0.
// dtypes: floating point; targets int32 or int64. Failures: dims that do not fit, another reduction; at run: a target that is no
// class. Tolerance: rtol 1e-5, atol 1e-6.
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

enum : int { kReduction, kIgnore };
constexpr std::int64_t kNothing = INT64_MIN;  // no ignore_index

void infer_loss(InferContext& c) {
  require_rank(c, 0, 2);
  const Shape& x = c.shape(0);
  require_dtype(c, 1, kIndexDtypes);
  require_rank(c, 1, x.rank() - 1, x.rank() - 1);
  require_dim(c.shape(1)[0], x[0], 1);
  for (int i = 2; i < x.rank(); ++i) require_dim(c.shape(1)[i - 1], x[i], 1);
  if (c.has_input(2)) {
    if (c.inputs[2].dtype != c.inputs[0].dtype) fail(EVN_ERROR_INVALID_MODEL, "the weights have another element type than x");
    require_vector(c, 2, x[1]);
  }
  const std::string& reduction = attr_string(c.node, kReduction);
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    fail(EVN_ERROR_INVALID_MODEL, "reduction must not be '%s'", reduction.c_str());
  }
  c.outputs[0].shape = reduction == "none" ? c.shape(1) : Shape{};
  if (c.outputs.size() > 1) c.outputs[1].shape = x;
}

// log(sum over classes of exp(x - top)) + top, for one place.
template <typename T>
double log_sum(const T* x, std::int64_t classes, std::int64_t step) {
  double top = -std::numeric_limits<double>::infinity();
  for (std::int64_t k = 0; k < classes; ++k) {
    cancellation_point();
    top = std::max(top, static_cast<double>(x[k * step]));
  }
  double sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    cancellation_point();
    sum += std::exp(static_cast<double>(x[k * step]) - top);
  }
  return top + std::log(sum);
}

template <typename T, bool kSoftmax>
void loss(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const std::string& reduction = attr_string(c.node, kReduction);
  const std::int64_t inner = x.elements(2, x.rank());
  const std::int64_t places = c.input(1).desc.shape.elements();
  T* log_prob = kSoftmax && c.outputs.size() > 1 && c.output(1).present() ? c.output(1).as<T>() : nullptr;
  double sum = 0, weights = 0;
  for (std::int64_t i = 0; i < places; ++i) {
    cancellation_point();
    const std::int64_t begin = i / inner * x[1] * inner + i % inner;
    const T* from = c.input(0).as<T>() + begin;
    const double shift = kSoftmax ? log_sum(from, x[1], inner) : 0;
    for (std::int64_t k = 0; log_prob != nullptr && k < x[1]; ++k) {
      cancellation_point();
      log_prob[begin + k * inner] = static_cast<T>(static_cast<double>(from[k * inner]) - shift);
    }
    const std::int64_t target = int_at(c.input(1), i);
    double weight = 0, value = 0;
    if (target != attr_int(c.node, kIgnore)) {
      if (target < 0 || target >= x[1]) fail(EVN_ERROR_INVALID_ARGUMENT, "target %lld is no class", static_cast<long long>(target));
      weight = c.has_input(2) ? static_cast<double>(c.input(2).as<T>()[target]) : 1;
      value = weight * (shift - static_cast<double>(from[target * inner]));
    }
    sum += value;
    weights += weight;
    if (reduction == "none" && c.output().present()) c.output().as<T>()[i] = static_cast<T>(value);
  }
  if (reduction != "none" && c.output().present()) *c.output().as<T>() = static_cast<T>(reduction == "mean" ? sum / weights : sum);
}

template <bool kSoftmax>
void reference_loss(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { loss<decltype(zero), kSoftmax>(c); });
}

constexpr AttributeSpec kAttributes[] = {string_attribute("reduction", "mean"), int_attribute("ignore_index", kNothing)};
constexpr Tolerance kNear = {1e-5, 1e-6};
constexpr OpDef kOps[] = {
    {.name = "NegativeLogLikelihoodLoss",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_loss,
     .reference = reference_loss<false>,
     .tolerance = kNear},
    {.name = "SoftmaxCrossEntropyLoss",
     .since = 12,
     .min_inputs = 2,
     .max_inputs = 3,
     .max_outputs = 2,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_loss,
     .reference = reference_loss<true>,
     .tolerance = kNear},
};

}  // namespace

extern const OpFamily loss_family;
const OpFamily loss_family = {kOps};

}  // namespace evn
