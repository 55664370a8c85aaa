// BatchNormalization, as it is in inference: y = (x - mean[c]) / sqrt(variance[c] + epsilon) * scale[c] + bias[c], where c is the
// index on axis 1.
//   inputs      x [N, C, ...], scale [C], bias [C], mean [C], variance [C]
//   attributes  epsilon; momentum (of no effect); training_mode (from 14) must be 0, spatial (before 9) 1
// dtypes: floating point; scale and bias, mean and variance may have another one than x. Failures: dims that do not fit; training
// and its outputs (UNSUPPORTED). Tolerance: rtol 1e-4, atol 1e-5 (a kernel may fold the division into one multiply-add).
#include "ops/batch_norm.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

constexpr int kMode = 2;  // spatial or training_mode

void infer_batch_norm(InferContext& c) {
  require_rank(c, 0, 2);
  for (int i = BatchNormInput::kScale; i <= BatchNormInput::kVariance; ++i) {
    require_dtype(c, i, kFloats);
    require_vector(c, i, c.shape(0)[1]);
  }
  require_same_dtype(c, BatchNormInput::kScale, BatchNormInput::kBias);
  require_same_dtype(c, BatchNormInput::kMean, BatchNormInput::kVariance);
  for (std::size_t i = 1; i < c.node.outputs.size(); ++i) {
    if (c.node.outputs[i] != kNoValue) fail(EVN_ERROR_UNSUPPORTED, "BatchNormalization with training outputs");
  }
  const std::int64_t inference = c.node.op->since < 9 ? 1 : 0;
  if (attr_given(c.node, kMode) && attr_int(c.node, kMode) != inference) {
    fail(EVN_ERROR_UNSUPPORTED, inference == 1 ? "BatchNormalization that is not spatial" : "BatchNormalization in training mode");
  }
  c.outputs[0].shape = c.shape(0);
}

double element(const ConstTensor& t, std::int64_t i) {
  return t.desc.dtype == DType::kFloat64 ? t.as<double>()[i] : t.as<float>()[i];
}

void reference_batch_norm(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const double epsilon = attr_float(c.node, BatchNormAttr::kEpsilon);
  const std::int64_t inner = x.elements(2, x.rank());
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t n = 0; n < x[0]; ++n) {
      for (std::int64_t channel = 0; channel < x[1]; ++channel) {
        const double deviation = std::sqrt(element(c.input(BatchNormInput::kVariance), channel) + epsilon);
        const double scale = element(c.input(BatchNormInput::kScale), channel) / deviation;
        const double mean = element(c.input(BatchNormInput::kMean), channel);
        const double bias = element(c.input(BatchNormInput::kBias), channel);
        const std::int64_t begin = (n * x[1] + channel) * inner;
        for (std::int64_t i = begin; i < begin + inner; ++i) {
          c.output().as<T>()[i] = static_cast<T>((static_cast<double>(c.input(0).as<T>()[i]) - mean) * scale + bias);
        }
      }
    }
  });
}

constexpr AttributeSpec kAttributes7[] = {float_attribute("epsilon", 1e-5f), float_attribute("momentum", 0.9f),
                                          int_attribute("spatial", 1)};
constexpr AttributeSpec kAttributes9[] = {float_attribute("epsilon", 1e-5f), float_attribute("momentum", 0.9f)};
constexpr AttributeSpec kAttributes14[] = {float_attribute("epsilon", 1e-5f), float_attribute("momentum", 0.9f),
                                           int_attribute("training_mode", 0)};

constexpr OpDef row(int since, int outputs, std::span<const AttributeSpec> attributes) {
  return {"BatchNormalization", "", since, 5, 5, 1, outputs, attributes, kFloats, 0, 0, nullptr, infer_batch_norm,
          reference_batch_norm, {1e-4, 1e-5}};
}

constexpr OpDef kOps[] = {row(7, 5, kAttributes7), row(9, 5, kAttributes9), row(14, 3, kAttributes14)};

}  // namespace

extern const OpFamily batch_norm_family;
const OpFamily batch_norm_family = {kOps};

}  // namespace evn
