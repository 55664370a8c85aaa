// LRN: y[n, c, ...] = x / (bias + alpha / size * sum of x^2 over the channels from c - (size - 1) / 2 to c + size / 2) ^ beta,
// where both halves are rounded down and channels outside the tensor do not count.
// dtypes: floating point. Failures: size below 1, rank below 2. Tolerance: rtol 1e-5, atol 1e-6.
#include "ops/lrn.h"

#include <algorithm>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_lrn(InferContext& c) {
  require_rank(c, 0, 2);
  if (attr_int(c.node, LrnAttr::kSize) < 1) fail(EVN_ERROR_INVALID_MODEL, "size is below 1");
  infer_same_shape(c);
}

void reference_lrn(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const LrnWindow window = lrn_window(c.node, x[1]);
  const double alpha =
      static_cast<double>(attr_float(c.node, LrnAttr::kAlpha)) / static_cast<double>(attr_int(c.node, LrnAttr::kSize));
  const double beta = attr_float(c.node, LrnAttr::kBeta);
  const double bias = attr_float(c.node, LrnAttr::kBias);
  const std::int64_t inner = x.elements(2, x.rank());
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      cancellation_point();
      const std::int64_t channel = i / inner % x[1];
      const T* first = c.input(0).as<T>() + i - channel * inner;
      double sum = 0;
      const std::int64_t end = std::min(channel + window.after, x[1] - 1);
      for (std::int64_t k = std::max<std::int64_t>(channel - window.before, 0); k <= end; ++k) {
        cancellation_point();
        sum += static_cast<double>(first[k * inner]) * static_cast<double>(first[k * inner]);
      }
      c.output().as<T>()[i] = static_cast<T>(static_cast<double>(c.input(0).as<T>()[i]) / std::pow(bias + alpha * sum, beta));
    }
  });
}

constexpr AttributeSpec kAttributes[] = {float_attribute("alpha", 1e-4f), float_attribute("beta", 0.75f),
                                         float_attribute("bias", 1), required_attribute("size", AttributeType::kInt)};
constexpr OpDef kOps[] = {
    {.name = "LRN",
     .since = 1,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .infer = infer_lrn,
     .reference = reference_lrn,
     .tolerance = {1e-5, 1e-6}},
};

}  // namespace

LrnWindow lrn_window(const Node& node, std::int64_t channels) {
  const std::int64_t size = attr_int(node, LrnAttr::kSize);
  return {std::min((size - 1) / 2, channels), std::min(size / 2, channels)};
}

extern const OpFamily lrn_family;
const OpFamily lrn_family = {kOps};

}  // namespace evn
