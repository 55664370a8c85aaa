// Softmax: y = exp(x - max) / sum(exp(x - max)); LogSoftmax: y = x - max - log(sum(exp(x - max))).
// From opset 13 along `axis` (default -1); before, over all axes from `axis` (default 1) on as if they were one.
// A row with NaN, +infinity, or -infinity alone gives NaN, as the formula says.
// dtypes: floating point. Failures: axis outside the rank. Tolerance: rtol 1e-4, atol 1e-6.
#include "ops/softmax.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_softmax(InferContext& c) {
  normalize_axis(attr_int(c.node, SoftmaxAttr::kAxis), c.shape(0).rank());
  infer_same_shape(c);
}

template <typename T, bool kLog>
void softmax_row(const T* x, T* y, std::int64_t length, std::int64_t step) {
  double top = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < length; ++i) {
    cancellation_point();
    top = std::max(top, static_cast<double>(x[i * step]));
  }
  double sum = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    cancellation_point();
    sum += std::exp(static_cast<double>(x[i * step]) - top);
  }
  const double log_sum = std::log(sum);
  for (std::int64_t i = 0; i < length; ++i) {
    cancellation_point();
    const double shifted = static_cast<double>(x[i * step]) - top;
    y[i * step] = static_cast<T>(kLog ? shifted - log_sum : std::exp(shifted) / sum);
  }
}

template <bool kLog>
void reference_softmax(const ReferenceContext& c) {
  const SoftmaxView view = softmax_view(c.node, c.input(0).desc.shape);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t o = 0; o < view.outer; ++o) {
      cancellation_point();
      for (std::int64_t i = 0; i < view.inner; ++i) {
        cancellation_point();
        const std::int64_t begin = o * view.length * view.inner + i;
        softmax_row<T, kLog>(c.input(0).as<T>() + begin, c.output().as<T>() + begin, view.length, view.inner);
      }
    }
  });
}

constexpr AttributeSpec kAxis1[] = {int_attribute("axis", 1)};
constexpr AttributeSpec kAxis13[] = {int_attribute("axis", -1)};
constexpr Tolerance kNear = {1e-4, 1e-6};

constexpr OpDef kOps[] = {
    {.name = "Softmax",
     .since = 1,
     .attributes = kAxis1,
     .dtypes = kFloats,
     .infer = infer_softmax,
     .reference = reference_softmax<false>,
     .tolerance = kNear},
    {.name = "Softmax",
     .since = 13,
     .attributes = kAxis13,
     .dtypes = kFloats,
     .infer = infer_softmax,
     .reference = reference_softmax<false>,
     .tolerance = kNear},
    {.name = "LogSoftmax",
     .since = 1,
     .attributes = kAxis1,
     .dtypes = kFloats,
     .infer = infer_softmax,
     .reference = reference_softmax<true>,
     .tolerance = kNear},
    {.name = "LogSoftmax",
     .since = 13,
     .attributes = kAxis13,
     .dtypes = kFloats,
     .infer = infer_softmax,
     .reference = reference_softmax<true>,
     .tolerance = kNear},
};

}  // namespace

SoftmaxView softmax_view(const Node& node, const Shape& x) {
  const int axis = normalize_axis(attr_int(node, SoftmaxAttr::kAxis), x.rank());
  if (node.op->since < 13) return {x.elements(0, axis), x.elements(axis, x.rank()), 1};
  return {x.elements(0, axis), x[axis], x.elements(axis + 1, x.rank())};
}

extern const OpFamily softmax_family;
const OpFamily softmax_family = {kOps};

}  // namespace evn
