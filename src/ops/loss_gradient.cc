// LossGradient: the derivative of NegativeLogLikelihoodLoss (ops/loss.cc), with its attributes. Not an operator of the format
// (ops/gradient.h).
//   inputs x [N, C, ...], of which only the shape is used, target [N, ...], dy of the loss's shape, optional weights [C]
//   dx[n, target, ...] = -weight[target] * dy, over the weights' sum where the reduction is mean; 0 elsewhere and where target is
//   ignore_index.
// dtypes: floating point; targets int32 or int64. Failures: dims that do not fit, another reduction; at run: a target that is no
// class.
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

constexpr AttributeSpec kAttributes[] = {string_attribute("reduction", "mean"), int_attribute("ignore_index", kNothing)};
constexpr OpDef kOps[] = {
    {.name = kLossGradient,
     .domain = kMergeDomain,
     .since = 1,
     .min_inputs = 3,
     .max_inputs = 4,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .flags = kOpShapeOnly,
     .infer = infer_loss_gradient,
     .reference = reference_loss_gradient,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

extern const OpFamily loss_gradient_family;
const OpFamily loss_gradient_family = {kOps};

}  // namespace evn
