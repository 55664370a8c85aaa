// ConstantOfShape: a tensor of the shape that input 0 lists, filled with the one element of `value` (default: float32 0).
// dtypes: the shape int64; the output any. Failures: a negative dimension, a value of other than one element, more than
// EVN_MAX_RANK dimensions (LIMIT). Exact.
#include <cstring>

#include "ops/infra/check.h"
#include "ops/infra/small_types.h"
#include "ops/infra/walk.h"

namespace evn {
namespace {

DType value_dtype(const Node& node, std::span<const DType>, int) {
  const Weight* value = attr_tensor(node, 0);
  return value != nullptr ? value->desc.dtype : DType::kFloat32;
}

void infer_constant_of_shape(InferContext& c) {
  require_dtype(c, 0, dtype_bit(DType::kInt64));
  require_rank(c, 0, 1, 1);
  const Weight* value = attr_tensor(c.node, 0);
  if (value != nullptr && value->desc.shape.elements() != 1) fail(EVN_ERROR_INVALID_MODEL, "value must have one element");
  InferContext::Ints dims;
  if (!c.int_value(0, &dims)) return infer_shape_of_length(c, c.shape(0)[0]);
  for (int i = 0; i < dims.count; ++i) {
    if (dims.v[i] < 0) fail(EVN_ERROR_INVALID_MODEL, "a dimension of %lld", static_cast<long long>(dims.v[i]));
  }
  c.outputs[0].shape = Shape(std::span<const std::int64_t>(dims.v, dims.count));
}

void reference_constant_of_shape(const ReferenceContext& c) {
  const Weight* value = attr_tensor(c.node, 0);
  const std::int64_t count = c.output().desc.shape.elements();
  const float zero = 0;
  const DType dtype = c.output().desc.dtype;
  if (is_sub_byte(dtype)) {
    const std::uint8_t bits = small_bits(dtype, value->data.get(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      set_small_bits(dtype, c.output().data, i, bits);
    }
    return clear_rest(dtype, c.output().data, count);
  }
  with_width(c.output().desc.dtype, [&](auto width) {
    const void* element = value != nullptr ? value->data.get() : &zero;
    for (std::int64_t i = 0; i < count; ++i) {
      cancellation_point();
      move_element<width()>(c.output().data, i, element, 0);
    }
  });
}

constexpr AttributeSpec kAttributes[] = {optional_attribute("value", AttributeType::kTensor)};
constexpr OpDef kOps[] = {
    {.name = "ConstantOfShape",
     .since = 9,
     .attributes = kAttributes,
     .dtypes = dtype_bit(DType::kInt64),
     .value_inputs = 1,
     .output_dtype = value_dtype,
     .infer = infer_constant_of_shape,
     .reference = reference_constant_of_shape},
};

}  // namespace

extern const OpFamily constant_of_shape_family;
const OpFamily constant_of_shape_family = {kOps};

}  // namespace evn
