// BatchNormalization: y = (x - mean[c]) / sqrt(variance[c] + epsilon) * scale[c] + bias[c], where c is the index on axis 1. In training
// mode (from 14) mean and variance are those of x itself, and outputs 1 and 2 are momentum * (inputs 3, 4) + (1 - momentum) * (those).
//   inputs      x [N, C, ...], scale [C], bias [C], mean [C], variance [C]
//   attributes  epsilon; momentum; training_mode (from 14); spatial (before 9) must be 1
// dtypes: floating point; scale and bias, mean and variance may have another one than x. Failures: dims that do not fit; training
// outputs without the mode, or before 14 (UNSUPPORTED). Tolerance: rtol 1e-4, atol 1e-5 (a kernel may fold the division into one multiply-add).
#include "ops/batch_norm.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_batch_norm(InferContext& c) {
  require_rank(c, 0, 2);
  for (int i = BatchNormInput::kScale; i <= BatchNormInput::kVariance; ++i) {
    require_dtype(c, i, kFloats);
    require_vector(c, i, c.shape(0)[1]);
  }
  require_same_dtype(c, BatchNormInput::kScale, BatchNormInput::kBias);
  require_same_dtype(c, BatchNormInput::kMean, BatchNormInput::kVariance);
  for (std::size_t i = 1; i < c.node.outputs.size(); ++i) {
    if (c.node.outputs[i] != kNoValue && !batch_norm_trains(c.node)) fail(EVN_ERROR_UNSUPPORTED, "BatchNormalization with training outputs");
    c.outputs[i].shape = c.shape(BatchNormInput::kMean);
  }
  if (c.node.op->since < 9 && attr_int(c.node, BatchNormAttr::kMode) != 1) fail(EVN_ERROR_UNSUPPORTED, "BatchNormalization that is not spatial");
  c.outputs[0].shape = c.shape(0);
}

double element(const ConstTensor& t, std::int64_t i) {
  return t.desc.dtype == DType::kFloat64 ? t.as<double>()[i] : t.as<float>()[i];
}

void set_element(const MutableTensor& t, std::int64_t i, double value) {
  if (t.desc.dtype == DType::kFloat64) {
    t.as<double>()[i] = value;
  } else {
    t.as<float>()[i] = static_cast<float>(value);
  }
}

struct Moments {
  double mean = 0, variance = 0;
};

// Of one channel of x.
template <typename T>
Moments moments_of(const ConstTensor& t, std::int64_t channel) {
  const Shape& x = t.desc.shape;
  const std::int64_t inner = x.elements(2, x.rank());
  const auto sum = [&](auto&& term) {
    double total = 0;
    for (std::int64_t i = 0; i < x[0] * inner; ++i) {
      total += term(static_cast<double>(t.as<T>()[(i / inner * x[1] + channel) * inner + i % inner]));
    }
    return total / static_cast<double>(x[0] * inner);
  };
  Moments m;
  m.mean = sum([](double v) { return v; });
  m.variance = sum([&](double v) { return (v - m.mean) * (v - m.mean); });
  return m;
}

void train_batch_norm(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const double epsilon = static_cast<double>(attr_float(c.node, BatchNormAttr::kEpsilon));
  const double momentum = static_cast<double>(attr_float(c.node, BatchNormAttr::kMomentum));
  const std::int64_t inner = x.elements(2, x.rank());
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t channel = 0; channel < x[1]; ++channel) {
      const Moments m = moments_of<T>(c.input(0), channel);
      const double scale = element(c.input(BatchNormInput::kScale), channel) / std::sqrt(m.variance + epsilon);
      const double bias = element(c.input(BatchNormInput::kBias), channel);
      for (std::int64_t i = 0; i < x[0] * inner && c.output().present(); ++i) {
        const std::int64_t at = (i / inner * x[1] + channel) * inner + i % inner;
        c.output().as<T>()[at] = static_cast<T>((static_cast<double>(c.input(0).as<T>()[at]) - m.mean) * scale + bias);
      }
      for (std::size_t i = 1; i < c.outputs.size(); ++i) {
        if (!c.outputs[i].present()) continue;
        const double before = element(c.input(i == 1 ? BatchNormInput::kMean : BatchNormInput::kVariance), channel);
        set_element(c.outputs[i], channel, momentum * before + (1 - momentum) * (i == 1 ? m.mean : m.variance));
      }
    }
  });
}

void reference_batch_norm(const ReferenceContext& c) {
  if (batch_norm_trains(c.node)) return train_batch_norm(c);
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

DType output_dtype(const Node&, std::span<const DType> inputs, int output) {
  return inputs[output == 0 ? 0 : static_cast<std::size_t>(BatchNormInput::kMean)];
}

constexpr OpDef row(int since, int outputs, std::span<const AttributeSpec> attributes) {
  return {"BatchNormalization", "", since, 5, 5, 1, outputs, attributes, kFloats, 0, 0, output_dtype, infer_batch_norm,
          reference_batch_norm, {1e-4, 1e-5}};
}

constexpr OpDef kOps[] = {row(7, 5, kAttributes7), row(9, 5, kAttributes9), row(14, 3, kAttributes14)};

}  // namespace

extern const OpFamily batch_norm_family;
const OpFamily batch_norm_family = {kOps};

}  // namespace evn
