// LayerNormalization: over the axes from `axis` on, y = (x - mean) / sqrt(variance + epsilon) * scale + bias; scale and the
// optional bias broadcast to x. Outputs 1 and 2, when wanted: the mean and 1 / sqrt(variance + epsilon), with axes of 1.
// The variance is the mean of squared differences. Over no elements the mean is NaN.
// dtypes: floating point. stash_type must be 1: outputs 1 and 2 are float32. Failures: axis outside the rank, shapes that do not
// broadcast to x, another stash_type. Tolerance: rtol 1e-4, atol 1e-5.
#include "ops/layer_norm.h"

#include "ops/infra/check.h"
#include "ops/infra/numeric.h"
#include "ops/infra/walk.h"

namespace evn {

void require_stash_type(const Node& node, int index, bool doubles) {
  if (!attr_given(node, index)) return;
  const std::int64_t type = attr_int(node, index);
  if (type == EVN_DTYPE_FLOAT32 || (doubles && type == EVN_DTYPE_FLOAT64)) return;
  if (type != EVN_DTYPE_FLOAT64 && type != EVN_DTYPE_FLOAT16 && type != EVN_DTYPE_BFLOAT16) {
    fail(EVN_ERROR_INVALID_MODEL, "attribute 'stash_type' is %lld, which is no floating type", static_cast<long long>(type));
  }
  fail(EVN_ERROR_UNSUPPORTED, "attribute 'stash_type' is %lld (%s); %s is computed in %s", static_cast<long long>(type),
       dtype_name(static_cast<DType>(type)), node.op->name, doubles ? "float32 (1) or float64 (11)" : "float32 (1)");
}

namespace {

DType layer_norm_dtype(const Node& node, std::span<const DType> inputs, int output) {
  require_stash_type(node, LayerNormAttr::kStashType, false);
  return output == 0 ? inputs[0] : DType::kFloat32;
}

void infer_layer_norm(InferContext& c) {
  require_same_dtype(c, 0, static_cast<int>(c.inputs.size()) - 1);
  const Shape& x = c.shape(0);
  const int axis = normalize_axis(attr_int(c.node, LayerNormAttr::kAxis), x.rank());
  for (int n = 1; n < 3 && c.has_input(n); ++n) {
    const Shape both = broadcast_partial(x, c.shape(n));
    if (both.rank() != x.rank()) fail(EVN_ERROR_INVALID_MODEL, "input %d has a higher rank than x", n);
    for (int i = 0; i < x.rank(); ++i) require_dim(x[i], both[i], n);
  }
  Shape reduced = x;
  for (int i = axis; i < x.rank(); ++i) reduced[i] = 1;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i].shape = i == 0 ? x : reduced;
}

template <typename T>
void layer_norm(const ReferenceContext& c) {
  const Shape& x = c.input(0).desc.shape;
  const int axis = normalize_axis(attr_int(c.node, LayerNormAttr::kAxis), x.rank());
  const double epsilon = attr_float(c.node, LayerNormAttr::kEpsilon);
  const std::int64_t outer = x.elements(0, axis);
  const std::int64_t size = x.elements(axis, x.rank());
  const T* from = c.input(0).as<T>();
  T* to = c.output().as<T>();
  for (std::int64_t o = 0; o < outer; ++o) {
    cancellation_point();
    double mean = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      mean += static_cast<double>(from[o * size + i]);
    }
    mean /= static_cast<double>(size);
    double variance = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      const double difference = static_cast<double>(from[o * size + i]) - mean;
      variance += difference * difference;
    }
    const double inverse = 1 / std::sqrt(variance / static_cast<double>(size) + epsilon);
    for (std::int64_t i = 0; i < size; ++i) {
      cancellation_point();
      to[o * size + i] = static_cast<T>((static_cast<double>(from[o * size + i]) - mean) * inverse);
    }
    if (c.outputs.size() > 1 && c.output(1).present()) c.output(1).as<float>()[o] = static_cast<float>(mean);
    if (c.outputs.size() > 2 && c.output(2).present()) c.output(2).as<float>()[o] = static_cast<float>(inverse);
  }
  const bool has_bias = c.has_input(2);
  const Strides bias = has_bias ? broadcast_strides(c.input(2).desc.shape, x) : Strides{};
  walk<2>(x, {broadcast_strides(c.input(1).desc.shape, x), bias}, [&](std::int64_t i, const std::int64_t* at) {
    const double added = has_bias ? static_cast<double>(c.input(2).as<T>()[at[1]]) : 0;
    to[i] = static_cast<T>(static_cast<double>(to[i]) * static_cast<double>(c.input(1).as<T>()[at[0]]) + added);
  });
}

void reference_layer_norm(const ReferenceContext& c) {
  dispatch_floats(c.input(0).desc.dtype, [&](auto zero) { layer_norm<decltype(zero)>(c); });
}

constexpr AttributeSpec kAttributes[] = {int_attribute("axis", -1), float_attribute("epsilon", 1e-5f),
                                         int_attribute("stash_type", 1)};
constexpr OpDef kOps[] = {
    {.name = "LayerNormalization",
     .since = 17,
     .min_inputs = 2,
     .max_inputs = 3,
     .max_outputs = 3,
     .attributes = kAttributes,
     .dtypes = kFloats,
     .output_dtype = layer_norm_dtype,
     .infer = infer_layer_norm,
     .reference = reference_layer_norm,
     .tolerance = {1e-4, 1e-5}},
};

}  // namespace

extern const OpFamily layer_norm_family;
const OpFamily layer_norm_family = {kOps};

}  // namespace evn
