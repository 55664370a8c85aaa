// BatchNormalization: y = (x - mean[c]) / sqrt(variance[c] + epsilon) * scale[c] + bias[c], where c is the index on axis 1, or,
// with spatial = 0 (before 9), that on all axes but the first. In training mode (from 14; before, when one of the outputs from 1 on
// is there) mean and variance are those of x itself, outputs 1 and 2 are momentum * (inputs 3, 4) + (1 - momentum) * (those), and
// outputs 3 and 4 (before 14) those.
//   inputs      x [N, C, ...], scale, bias, mean, variance [C], with spatial = 0 [C, ...]; from 9, x [N] has one channel
//   attributes  epsilon; momentum; training_mode (from 14); spatial (before 9)
// dtypes: floating point; scale and bias, mean and variance may have another one than x. Failures: dims that do not fit; training
// outputs without the mode. Tolerance: rtol 1e-4, atol 1e-5 (a kernel may fold the division into one multiply-add).
#include "ops/batch_norm.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"

namespace evn {
namespace {

void infer_batch_norm(InferContext& c) {
  require_rank(c, 0, c.node.op->since < 9 ? 2 : 1);
  const bool by_element = batch_norm_by_element(c.node);
  const std::int64_t channels = c.shape(0).rank() == 1 ? 1 : c.shape(0)[1];
  for (int i = BatchNormInput::kScale; i <= BatchNormInput::kVariance; ++i) {
    require_dtype(c, i, kFloats);
    if (!by_element) {
      require_vector(c, i, channels);
      continue;
    }
    if (c.shape(i).rank() != c.shape(0).rank() - 1) {
      fail(EVN_ERROR_INVALID_MODEL, "input %d is of rank %d, for an input of rank %d", i, c.shape(i).rank(), c.shape(0).rank());
    }
    for (int axis = 1; axis < c.shape(0).rank(); ++axis) require_dim(c.shape(i)[axis - 1], c.shape(0)[axis], i);
  }
  require_same_dtype(c, BatchNormInput::kScale, BatchNormInput::kBias);
  require_same_dtype(c, BatchNormInput::kMean, BatchNormInput::kVariance);
  for (std::size_t i = 1; i < c.node.outputs.size(); ++i) {
    if (c.node.outputs[i] != kNoValue && !batch_norm_trains(c.node))
      fail(EVN_ERROR_INVALID_MODEL, "training outputs without training_mode");
    c.outputs[i].shape = c.shape(BatchNormInput::kMean);
  }
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

// x seen as [samples, channels, inner]: what has parameters of its own is a channel.
struct Extents {
  std::int64_t samples, channels, inner;
};

Extents extents_of(const Node& node, const Shape& x) {
  if (x.rank() == 1) return {x[0], 1, 1};
  if (batch_norm_by_element(node)) return {x[0], x.elements(1, x.rank()), 1};
  return {x[0], x[1], x.elements(2, x.rank())};
}

struct Moments {
  double mean = 0, variance = 0;
};

// Mean and variance of one channel of x.
template <typename T>
Moments moments_of(const ConstTensor& t, const Extents& x, std::int64_t channel) {
  const auto sum = [&](auto&& term) {
    double total = 0;
    for (std::int64_t i = 0; i < x.samples * x.inner; ++i) {
      cancellation_point();
      total += term(static_cast<double>(t.as<T>()[(i / x.inner * x.channels + channel) * x.inner + i % x.inner]));
    }
    return total / static_cast<double>(x.samples * x.inner);
  };
  Moments m;
  m.mean = sum([](double v) { return v; });
  m.variance = sum([&](double v) { return (v - m.mean) * (v - m.mean); });
  return m;
}

// Output i of a training run, from 1 on.
double statistic(std::size_t i, const Moments& m, double momentum, double mean_before, double variance_before) {
  switch (i) {
    case 1: return momentum * mean_before + (1 - momentum) * m.mean;
    case 2: return momentum * variance_before + (1 - momentum) * m.variance;
    case 3: return m.mean;
    default: return m.variance;
  }
}

void train_batch_norm(const ReferenceContext& c) {
  const Extents x = extents_of(c.node, c.input(0).desc.shape);
  const double epsilon = static_cast<double>(attr_float(c.node, BatchNormAttr::kEpsilon));
  const double momentum = static_cast<double>(attr_float(c.node, BatchNormAttr::kMomentum));
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t channel = 0; channel < x.channels; ++channel) {
      cancellation_point();
      const Moments m = moments_of<T>(c.input(0), x, channel);
      const double scale = element(c.input(BatchNormInput::kScale), channel) / std::sqrt(m.variance + epsilon);
      const double bias = element(c.input(BatchNormInput::kBias), channel);
      for (std::int64_t i = 0; i < x.samples * x.inner && c.output().present(); ++i) {
        cancellation_point();
        const std::int64_t at = (i / x.inner * x.channels + channel) * x.inner + i % x.inner;
        c.output().as<T>()[at] = static_cast<T>((static_cast<double>(c.input(0).as<T>()[at]) - m.mean) * scale + bias);
      }
      for (std::size_t i = 1; i < c.outputs.size(); ++i) {
        if (!c.outputs[i].present()) continue;
        set_element(c.outputs[i], channel,
                    statistic(i, m, momentum, element(c.input(BatchNormInput::kMean), channel),
                              element(c.input(BatchNormInput::kVariance), channel)));
      }
    }
  });
}

void reference_batch_norm(const ReferenceContext& c) {
  if (batch_norm_trains(c.node)) return train_batch_norm(c);
  const Extents x = extents_of(c.node, c.input(0).desc.shape);
  const double epsilon = attr_float(c.node, BatchNormAttr::kEpsilon);
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t n = 0; n < x.samples; ++n) {
      cancellation_point();
      for (std::int64_t channel = 0; channel < x.channels; ++channel) {
        cancellation_point();
        const double deviation = std::sqrt(element(c.input(BatchNormInput::kVariance), channel) + epsilon);
        const double scale = element(c.input(BatchNormInput::kScale), channel) / deviation;
        const double mean = element(c.input(BatchNormInput::kMean), channel);
        const double bias = element(c.input(BatchNormInput::kBias), channel);
        const std::int64_t begin = (n * x.channels + channel) * x.inner;
        for (std::int64_t i = begin; i < begin + x.inner; ++i) {
          cancellation_point();
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
  return {.name = "BatchNormalization",
          .since = since,
          .min_inputs = 5,
          .max_inputs = 5,
          .max_outputs = outputs,
          .attributes = attributes,
          .dtypes = kFloats,
          .output_dtype = output_dtype,
          .infer = infer_batch_norm,
          .reference = reference_batch_norm,
          .tolerance = {1e-4, 1e-5}};
}

constexpr OpDef kOps[] = {row(7, 5, kAttributes7), row(9, 5, kAttributes9), row(14, 3, kAttributes14)};

}  // namespace

extern const OpFamily batch_norm_family;
const OpFamily batch_norm_family = {kOps};

}  // namespace evn
