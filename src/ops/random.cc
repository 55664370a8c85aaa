// Random numbers: RandomUniform(Like), RandomNormal(Like), Bernoulli, Multinomial, Dropout.
//   Uniform on [low, high), normal of `mean` and `scale`; Bernoulli is 1 with the probability that the input says; Multinomial
//   draws sample_size classes for each row of logarithms of weights; Dropout in training mode leaves each element out with
//   probability `ratio` and divides the others by 1 - ratio; else it hands its input on.
// A stream is made from the node's `seed` (without one: from its name) and the seed of the run (evn_run_options): the same seeds
// give the same bits, in every run. ONNX leaves the generator open. dtypes: floating; Bernoulli's output and the shape of ...Like
// any number or bool. Failures: a `dtype` that cannot be drawn; a ratio outside [0, 1); for Multinomial no classes or a sample_size
// below 1. Tolerance: none is defined.
#include <cmath>
#include <vector>

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/random.h"

namespace evn {
namespace {

constexpr std::uint32_t kHalves = dtype_bit(DType::kFloat16) | dtype_bit(DType::kBfloat16);
constexpr std::uint32_t kDrawn = kFloats | kHalves;

// Writes x as element i of a tensor of numbers or bools.
void put(const MutableTensor& y, std::int64_t i, double x) {
  switch (y.desc.dtype) {
    case DType::kFloat16: y.as<Float16>()[i] = Float16::from(x); return;
    case DType::kBfloat16: y.as<Bfloat16>()[i] = Bfloat16::from(x); return;
    case DType::kBool: y.as<std::uint8_t>()[i] = x != 0 ? 1 : 0; return;
    default: break;
  }
  dispatch_numbers(y.desc.dtype, [&](auto zero) { y.as<decltype(zero)>()[i] = static_cast<decltype(zero)>(x); });
}

double get(const ConstTensor& x, std::int64_t i) {
  if (x.desc.dtype == DType::kFloat16) return x.as<Float16>()[i].value();
  if (x.desc.dtype == DType::kBfloat16) return x.as<Bfloat16>()[i].value();
  double value = 0;
  dispatch_numbers(x.desc.dtype, [&](auto zero) { value = static_cast<double>(x.as<decltype(zero)>()[i]); });
  return value;
}

DType dtype_of(std::int64_t number, std::uint32_t allowed) {
  const bool fits = number > 0 && number < 32 && (allowed >> number & 1u) != 0;
  if (!fits) fail(EVN_ERROR_INVALID_MODEL, "dtype %lld cannot be drawn", static_cast<long long>(number));
  return static_cast<DType>(number);
}

// ------------------------------------------------------------------------------------------------ uniform and normal --

enum : int { kDtype, kFirst, kSecond, kSeed, kShape };

DType given_dtype(const Node& node, std::span<const DType>, int) { return dtype_of(attr_int(node, kDtype), kDrawn); }

DType like_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t number = attr_int(node, kDtype);
  return dtype_of(number == 0 ? static_cast<std::int64_t>(inputs[0]) : number, kDrawn);
}

void infer_shaped(InferContext& c) {
  Shape shape;
  for (const std::int64_t dim : attr_ints(c.node, kShape)) {
    if (dim < 0) fail(EVN_ERROR_INVALID_MODEL, "shape has the dimension %lld", static_cast<long long>(dim));
    shape.push_back(dim);
  }
  c.outputs[0].shape = shape;
}

void draw_uniform(const ReferenceContext& c) {
  const RandomStream stream(c);
  const double high = attr_float(c.node, kFirst);
  const double low = attr_float(c.node, kSecond);
  const std::int64_t count = c.output().desc.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    put(c.output(), i, low + (high - low) * stream.uniform(static_cast<std::uint64_t>(i)));
  }
}

void draw_normal(const ReferenceContext& c) {
  const RandomStream stream(c);
  const double mean = attr_float(c.node, kFirst);
  const double scale = attr_float(c.node, kSecond);
  const std::int64_t count = c.output().desc.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    put(c.output(), i, mean + scale * stream.normal(static_cast<std::uint64_t>(i)));
  }
}

// --------------------------------------------------------------------------------------------- Bernoulli, Multinomial --

constexpr std::uint32_t kTruths = kNumbers | kHalves | dtype_bit(DType::kBool);

DType bernoulli_dtype(const Node& node, std::span<const DType> inputs, int) {
  const std::int64_t number = attr_int(node, 0);
  return dtype_of(number == 0 ? static_cast<std::int64_t>(inputs[0]) : number, kTruths);
}

void reference_bernoulli(const ReferenceContext& c) {
  const RandomStream stream(c);
  const std::int64_t count = c.output().desc.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    put(c.output(), i, stream.uniform(static_cast<std::uint64_t>(i)) < get(c.input(0), i) ? 1 : 0);
  }
}

enum : int { kClassDtype, kSampleSize };

DType class_dtype(const Node& node, std::span<const DType>, int) { return dtype_of(attr_int(node, kClassDtype), kIndexDtypes); }

void infer_multinomial(InferContext& c) {
  require_rank(c, 0, 2, 2);
  const std::int64_t samples = attr_int(c.node, kSampleSize);
  if (samples < 1) fail(EVN_ERROR_INVALID_MODEL, "sample_size is %lld", static_cast<long long>(samples));
  if (c.shape(0)[1] == 0) fail(EVN_ERROR_INVALID_MODEL, "there are no classes to draw from");
  c.outputs[0].shape = {c.shape(0)[0], samples};
}

void reference_multinomial(const ReferenceContext& c) {
  const RandomStream stream(c);
  const Shape& x = c.input(0).desc.shape;
  const std::int64_t samples = c.output().desc.shape[1];
  std::vector<double> sums(static_cast<std::size_t>(x[1]));
  for (std::int64_t row = 0; row < x[0]; ++row) {
    cancellation_point();
    double largest = -INFINITY;
    for (std::int64_t k = 0; k < x[1]; ++k) {
      cancellation_point();
      largest = std::fmax(largest, get(c.input(0), row * x[1] + k));
    }
    double sum = 0;
    for (std::int64_t k = 0; k < x[1]; ++k) {
      cancellation_point();
      sums[static_cast<std::size_t>(k)] = sum += std::exp(get(c.input(0), row * x[1] + k) - largest);
    }
    for (std::int64_t s = 0; s < samples; ++s) {
      cancellation_point();
      const double at = sum * stream.uniform(static_cast<std::uint64_t>(row * samples + s));
      std::int64_t k = 0;
      while (k + 1 < x[1] && !(at < sums[static_cast<std::size_t>(k)])) {
        cancellation_point();
        ++k;
      }
      put(c.output(), row * samples + s, static_cast<double>(k));
    }
  }
}

// ----------------------------------------------------------------------------------------------------------- Dropout --

DType dropout_dtype7(const Node&, std::span<const DType> inputs, int) { return inputs[0]; }
DType dropout_dtype10(const Node&, std::span<const DType> inputs, int output) { return output == 0 ? inputs[0] : DType::kBool; }

void infer_dropout(InferContext& c) {
  require_scalar(c, 1);
  require_scalar(c, 2);
  require_dtype(c, 1, kDrawn);
  require_dtype(c, 2, dtype_bit(DType::kBool));
  infer_same_shape(c);
}

void reference_dropout(const ReferenceContext& c) {
  const bool training = c.has_input(2) && *c.input(2).as<std::uint8_t>() != 0;
  const double ratio = !training ? 0 : c.has_input(1) ? get(c.input(1), 0) : 0.5;
  if (!(ratio >= 0 && ratio < 1)) fail(EVN_ERROR_INVALID_ARGUMENT, "the ratio of Dropout is outside [0, 1)");
  const RandomStream stream(c);
  const std::int64_t count = c.output().desc.shape.elements();
  const bool masked = c.outputs.size() > 1 && c.output(1).present();
  for (std::int64_t i = 0; i < count; ++i) {
    cancellation_point();
    const bool stays = ratio == 0 || stream.uniform(static_cast<std::uint64_t>(i)) >= ratio;
    put(c.output(), i, stays ? get(c.input(0), i) / (1 - ratio) : 0);
    if (masked) put(c.output(1), i, stays ? 1 : 0);
  }
}

constexpr AttributeSpec kUniform[] = {int_attribute("dtype", EVN_DTYPE_FLOAT32), float_attribute("high", 1),
                                      float_attribute("low", 0), optional_attribute("seed", AttributeType::kFloat),
                                      required_attribute("shape", AttributeType::kInts)};
constexpr AttributeSpec kNormal[] = {int_attribute("dtype", EVN_DTYPE_FLOAT32), float_attribute("mean", 0),
                                     float_attribute("scale", 1), optional_attribute("seed", AttributeType::kFloat),
                                     required_attribute("shape", AttributeType::kInts)};
constexpr AttributeSpec kUniformLike[] = {int_attribute("dtype", 0), float_attribute("high", 1), float_attribute("low", 0),
                                          optional_attribute("seed", AttributeType::kFloat)};
constexpr AttributeSpec kNormalLike[] = {int_attribute("dtype", 0), float_attribute("mean", 0), float_attribute("scale", 1),
                                         optional_attribute("seed", AttributeType::kFloat)};
constexpr AttributeSpec kBernoulli[] = {int_attribute("dtype", 0), optional_attribute("seed", AttributeType::kFloat)};
constexpr AttributeSpec kMultinomial[] = {int_attribute("dtype", EVN_DTYPE_INT32), int_attribute("sample_size", 1),
                                          optional_attribute("seed", AttributeType::kFloat)};
constexpr AttributeSpec kDropout7[] = {float_attribute("ratio", 0.5f)};
constexpr AttributeSpec kDropout12[] = {int_attribute("seed", 0)};
constexpr std::uint32_t kAnyShape = kStoredDtype;

constexpr OpDef kOps[] = {
    {.name = "RandomUniform",
     .since = 1,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kUniform,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = given_dtype,
     .infer = infer_shaped,
     .reference = draw_uniform},
    {.name = "RandomNormal",
     .since = 1,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kNormal,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = given_dtype,
     .infer = infer_shaped,
     .reference = draw_normal},
    {.name = "RandomUniformLike",
     .since = 1,
     .attributes = kUniformLike,
     .dtypes = kAnyShape,
     .flags = kOpRandom | kOpShapeOnly,
     .output_dtype = like_dtype,
     .infer = infer_same_shape,
     .reference = draw_uniform},
    {.name = "RandomNormalLike",
     .since = 1,
     .attributes = kNormalLike,
     .dtypes = kAnyShape,
     .flags = kOpRandom | kOpShapeOnly,
     .output_dtype = like_dtype,
     .infer = infer_same_shape,
     .reference = draw_normal},
    {.name = "Bernoulli",
     .since = 15,
     .attributes = kBernoulli,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = bernoulli_dtype,
     .infer = infer_same_shape,
     .reference = reference_bernoulli},
    {.name = "Multinomial",
     .since = 7,
     .attributes = kMultinomial,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = class_dtype,
     .infer = infer_multinomial,
     .reference = reference_multinomial},
    {.name = "Dropout",
     .since = 7,
     .max_outputs = 2,
     .attributes = kDropout7,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = dropout_dtype7,
     .infer = infer_dropout,
     .reference = reference_dropout},
    {.name = "Dropout",
     .since = 10,
     .max_outputs = 2,
     .attributes = kDropout7,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = dropout_dtype10,
     .infer = infer_dropout,
     .reference = reference_dropout},
    {.name = "Dropout",
     .since = 12,
     .max_inputs = 3,
     .max_outputs = 2,
     .attributes = kDropout12,
     .dtypes = kDrawn,
     .flags = kOpRandom,
     .output_dtype = dropout_dtype10,
     .infer = infer_dropout,
     .reference = reference_dropout},
};

}  // namespace

extern const OpFamily random_family;
const OpFamily random_family = {kOps};

}  // namespace evn
