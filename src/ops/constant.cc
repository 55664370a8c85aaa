// Constant: its attribute as a tensor. graph/validate turns these nodes into constant values; the row is for completeness.
//   value and sparse_value (tensors; model/ makes a sparse one dense), value_float, value_int and value_string (scalars),
//   value_floats, value_ints and value_strings (lists): exactly one
// dtypes: any. Failures: none or two of the attributes (INVALID_MODEL). Exact.
#include <cstring>

#include "ops/infra/check.h"

namespace evn {
namespace {

enum : int { kValue, kValueFloat, kValueFloats, kValueInt, kValueInts, kValueString, kValueStrings, kSparseValue };

constexpr AttributeSpec kConstant1[] = {required_attribute("value", AttributeType::kTensor)};
constexpr AttributeSpec kConstant11[] = {optional_attribute("value", AttributeType::kTensor),
                                         optional_attribute("sparse_value", AttributeType::kTensor)};
constexpr AttributeSpec kConstant12[] = {
    optional_attribute("value", AttributeType::kTensor),          optional_attribute("value_float", AttributeType::kFloat),
    optional_attribute("value_floats", AttributeType::kFloats),   optional_attribute("value_int", AttributeType::kInt),
    optional_attribute("value_ints", AttributeType::kInts),       optional_attribute("value_string", AttributeType::kString),
    optional_attribute("value_strings", AttributeType::kStrings), optional_attribute("sparse_value", AttributeType::kTensor)};

// The resolved scalars have defaults, so what was given is seen in the model's own list.
int given_attribute(const Node& node) {
  int found = -1;
  for (const Attribute& attribute : node.attributes) {
    for (int i = kValue; i <= kSparseValue; ++i) {
      if (attribute.name != kConstant12[i].name) continue;
      if (found >= 0) fail(EVN_ERROR_INVALID_MODEL, "a constant with two values");
      found = i;
    }
  }
  if (found < 0) fail(EVN_ERROR_INVALID_MODEL, "a constant without a value");
  if (found == kSparseValue) return kValue;
  return found;
}

const Weight& tensor_value(const Node& node) {
  const std::span<const AttributeSpec> specs = node.op->attributes;
  int given = kValue;
  for (int i = 0; i < static_cast<int>(specs.size()); ++i) {
    if (specs[static_cast<std::size_t>(i)].type == AttributeType::kTensor && attr_given(node, i)) given = i;
  }
  return *attr_tensor(node, given);
}

DType constant_dtype(const Node& node, std::span<const DType>, int) {
  switch (given_attribute(node)) {
    case kValue: return tensor_value(node).desc.dtype;
    case kValueFloat:
    case kValueFloats: return DType::kFloat32;
    case kValueString:
    case kValueStrings: return DType::kString;
    default: return DType::kInt64;
  }
}

void infer_constant(InferContext& c) {
  switch (given_attribute(c.node)) {
    case kValue: c.outputs[0].shape = tensor_value(c.node).desc.shape; break;
    case kValueFloats: c.outputs[0].shape = {static_cast<std::int64_t>(attr_floats(c.node, kValueFloats).size())}; break;
    case kValueInts: c.outputs[0].shape = {static_cast<std::int64_t>(attr_ints(c.node, kValueInts).size())}; break;
    case kValueStrings: c.outputs[0].shape = {static_cast<std::int64_t>(attr_strings(c.node, kValueStrings).size())}; break;
    default: c.outputs[0].shape = {};
  }
}

template <typename T>
void write(const ReferenceContext& c, std::span<const T> values) {
  if (!values.empty()) move_in_pieces(c.output().data, values.data(), values.size_bytes());
}

void reference_constant(const ReferenceContext& c) {
  switch (given_attribute(c.node)) {
    case kValue: {
      const Weight& value = tensor_value(c.node);
      if (value.size_bytes != 0) move_in_pieces(c.output().data, value.data.get(), value.size_bytes);
      break;
    }
    case kValueFloat: *c.output().as<float>() = attr_float(c.node, kValueFloat); break;
    case kValueFloats: write(c, attr_floats(c.node, kValueFloats)); break;
    case kValueString: *c.output().as<TextElement>() = c.add_text(attr_string(c.node, kValueString)); break;
    case kValueStrings: {
      auto* to = c.output().as<TextElement>();
      for (const std::string& text : attr_strings(c.node, kValueStrings)) {
        cancellation_point();
        *to++ = c.add_text(text);
      }
      break;
    }
    case kValueInt: *c.output().as<std::int64_t>() = attr_int(c.node, kValueInt); break;
    default: write(c, attr_ints(c.node, kValueInts));
  }
}

constexpr OpDef kOps[] = {
    {.name = "Constant",
     .since = 1,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kConstant1,
     .dtypes = kStoredDtype,
     .output_dtype = constant_dtype,
     .infer = infer_constant,
     .reference = reference_constant},
    {.name = "Constant",
     .since = 11,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kConstant11,
     .dtypes = kStoredDtype,
     .output_dtype = constant_dtype,
     .infer = infer_constant,
     .reference = reference_constant},
    {.name = "Constant",
     .since = 12,
     .min_inputs = 0,
     .max_inputs = 0,
     .attributes = kConstant12,
     .dtypes = kStoredDtype,
     .output_dtype = constant_dtype,
     .infer = infer_constant,
     .reference = reference_constant},
};

}  // namespace

extern const OpFamily constant_family;
const OpFamily constant_family = {kOps};

}  // namespace evn
