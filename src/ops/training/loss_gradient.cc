// LossGradient: the derivative of NegativeLogLikelihoodLoss (ops/loss.cc), with its attributes. Not an operator of the format
// (ops/gradient.h).
//   inputs x [N, C, ...], of which only the shape is used, target [N, ...], dy of the loss's shape, optional weights [C]
//   dx[n, target, ...] = -weight[target] * dy, over the weights' sum where the reduction is mean; 0 elsewhere and where target is
//   ignore_index.
// CrossEntropyGradient: that of SoftmaxCrossEntropyLoss, with the same inputs, of which x is read: the softmax of x along axis 1,
// minus 1 at the target, times weight[target] * dy over the weights' sum. dtypes: floating point; targets int32 or int64. Failures:
// dims that do not fit, another reduction; at run: a target that is no class.
#include <cmath>
#include <limits>
#include <vector>

#include "ops/gradient.h"
#include "ops/infra/check.h"
#include "ops/infra/index.h"
#include "ops/infra/numeric.h"
#include "ops/merge.h"

namespace evn {
namespace {

enum : int { kReduction, kIgnore };
enum : int { kX, kTarget, kDy, kWeight };
constexpr std::int64_t kNothing = INT64_MIN;  // no ignore_index

void infer_loss_gradient(InferContext& c) {
  require_rank(c, kX, 2);
  const Shape& x = c.shape(kX);
  require_dtype(c, kTarget, kIndexDtypes);
  require_rank(c, kTarget, x.rank() - 1, x.rank() - 1);
  require_dim(c.shape(kTarget)[0], x[0], kTarget);
  for (int i = 2; i < x.rank(); ++i) require_dim(c.shape(kTarget)[i - 1], x[i], kTarget);
  const std::string& reduction = attr_string(c.node, kReduction);
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    fail(EVN_ERROR_INVALID_MODEL, "reduction must not be '%s'", reduction.c_str());
  }
  const int rank = reduction == "none" ? x.rank() - 1 : 0;
  require_rank(c, kDy, rank, rank);
  for (int i = 0; i < rank; ++i) require_dim(c.shape(kDy)[i], c.shape(kTarget)[i], kDy);
  require_vector(c, kWeight, x[1]);
  for (const int i : {int{kDy}, int{kWeight}}) {
    if (c.has_input(i) && c.inputs[i].dtype != c.inputs[kX].dtype)
      fail(EVN_ERROR_INVALID_MODEL, "input %d has another element type than x", i);
  }
  c.outputs[0].shape = x;
}

// The weight of each place; 0 where it is ignored.
template <typename T>
std::vector<double> weights_of(const ReferenceContext& c) {
  std::vector<double> weights(static_cast<std::size_t>(c.input(kTarget).desc.shape.elements()));
  const std::int64_t classes = c.input(kX).desc.shape[1];
  for (std::size_t i = 0; i < weights.size(); ++i) {
    cancellation_point();
    const std::int64_t target = int_at(c.input(kTarget), static_cast<std::int64_t>(i));
    if (target == attr_int(c.node, kIgnore)) continue;
    if (target < 0 || target >= classes)
      fail(EVN_ERROR_INVALID_ARGUMENT, "target %lld is no class", static_cast<long long>(target));
    weights[i] = c.has_input(kWeight) ? static_cast<double>(c.input(kWeight).as<T>()[target]) : 1;
  }
  return weights;
}

template <typename T>
void loss_gradient(const ReferenceContext& c) {
  const Shape& x = c.input(kX).desc.shape;
  const std::string& reduction = attr_string(c.node, kReduction);
  const std::int64_t inner = x.elements(2, x.rank());
  const std::vector<double> weights = weights_of<T>(c);
  double total = 0;
  for (const double w : weights) {
    cancellation_point();
    total += w;
  }
  const double scale = reduction == "mean" ? 1 / total : 1;
  T* dx = c.output().as<T>();
  fill_in_pieces(dx, x.elements(), T(0));
  for (std::size_t p = 0; p < weights.size(); ++p) {
    cancellation_point();
    const auto i = static_cast<std::int64_t>(p);
    const std::int64_t target = int_at(c.input(kTarget), i);
    if (target == attr_int(c.node, kIgnore)) continue;
    const auto dy = static_cast<double>(c.input(kDy).as<T>()[reduction == "none" ? i : 0]);
    dx[(i / inner * x[1] + target) * inner + i % inner] = static_cast<T>(-weights[p] * scale * dy);
  }
}

void reference_loss_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(kX).desc.dtype, [&](auto zero) { loss_gradient<decltype(zero)>(c); });
}

// Makes factor * softmax of a line.
template <typename T>
void put_softmax(T* x, std::int64_t classes, double factor) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) {
    cancellation_point();
    top = std::max(top, static_cast<double>(x[k]));
  }
  for (std::int64_t k = 0; k < classes; ++k) {
    cancellation_point(kFunctionWork);
    sum += std::exp(static_cast<double>(x[k]) - top);
  }
  for (std::int64_t k = 0; k < classes; ++k) {
    cancellation_point(kFunctionWork);
    x[k] = static_cast<T>(factor * std::exp(static_cast<double>(x[k]) - top) / sum);
  }
}

// On top of what loss_gradient has made.
template <typename T>
void cross_entropy_gradient(const ReferenceContext& c) {
  loss_gradient<T>(c);
  const Shape& x = c.input(kX).desc.shape;
  const std::int64_t inner = x.elements(2, x.rank()), places = c.input(kTarget).desc.shape.elements();
  std::vector<T> line(static_cast<std::size_t>(x[1]));
  for (std::int64_t p = 0; p < places; ++p) {
    cancellation_point();
    const std::int64_t target = int_at(c.input(kTarget), p);
    if (target == attr_int(c.node, kIgnore)) continue;
    const std::int64_t begin = p / inner * x[1] * inner + p % inner;
    const double factor = -static_cast<double>(c.output().as<T>()[begin + target * inner]);
    for (std::int64_t k = 0; k < x[1]; ++k) {
      cancellation_point();
      line[static_cast<std::size_t>(k)] = c.input(kX).as<T>()[begin + k * inner];
    }
    T* const dx = c.output().as<T>() + begin;
    put_softmax(line.data(), x[1], factor);
    for (std::int64_t k = 0; k < x[1]; ++k) {
      cancellation_point();
      dx[k * inner] += line[static_cast<std::size_t>(k)];
    }
  }
}

void reference_cross_entropy_gradient(const ReferenceContext& c) {
  dispatch_floats(c.input(kX).desc.dtype, [&](auto zero) { cross_entropy_gradient<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttributes[] = {string_attribute("reduction", "mean"), int_attribute("ignore_index", kNothing)};
constexpr OpDef row(const char* name, std::uint32_t flags, void (*reference)(const ReferenceContext&)) {
  return {.name = name,
          .domain = kInternalDomain,
          .since = 1,
          .min_inputs = 3,
          .max_inputs = 4,
          .attributes = kAttributes,
          .dtypes = kFloats,
          .flags = flags,
          .infer = infer_loss_gradient,
          .reference = reference,
          .tolerance = {1e-5, 1e-6}};
}

constexpr OpDef kOps[] = {
    row(kLossGradient, kOpShapeOnly, reference_loss_gradient),
    row(kCrossEntropyGradient, 0, reference_cross_entropy_gradient),
};

}  // namespace

extern const OpFamily loss_gradient_family;
const OpFamily loss_gradient_family = {kOps};

}  // namespace evn
