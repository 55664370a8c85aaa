// ONNX as the trainer edits it: the library's own bytes (host.h, read_plain) as structs, and back. What is not looked at
// is kept as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/origin.h"

namespace evn_train {

inline constexpr std::int32_t kFloat = 1, kInt64 = 7, kBool = 9;  // TensorProto.DataType

struct OnnxNode {
  std::string name, op_type, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> attributes;  // AttributeProto, each
};

struct OnnxTensor {
  std::string name;
  std::int32_t dtype = 0;
  std::vector<std::int64_t> dims;
  std::string_view data;    // raw_data; empty where the tensor has none
  std::string_view whole;   // TensorProto, of a tensor that was read
  bool is_literal = false;  // it was a Constant node of float32, and is written as an initializer
  evn::Origin origin = evn::Origin::kUnknown;
};

struct OnnxValue {
  std::string name;
  std::int32_t dtype = 0;  // 0: it is no tensor, and `whole` says what it is
  bool has_shape = false;
  std::vector<std::int64_t> dims;  // -1: not known
  std::vector<std::string> symbols;
  std::string whole;
};

struct OnnxModel {
  std::int64_t ir_version = 0;
  std::vector<std::pair<std::string, std::int64_t>> opsets;
  std::string others;  // fields of ModelProto that are kept as they are: metadata and producer
  std::string graph_name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxValue> inputs, outputs;
  std::vector<OnnxValue> defaults;                          // inputs that have an initializer; not written
  std::vector<std::pair<std::string, std::int32_t>> types;  // of tensors that nodes make; not written
};

// The model refers to the bytes. Throws EVN_ERROR_INTERNAL where they are no such model.
OnnxModel read_onnx(std::string_view bytes);
std::string write_onnx(const OnnxModel& model);

// Branch or body of a node.
struct OnnxBody {
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxNode> nodes;
  std::vector<std::pair<std::string, std::int32_t>> types;  // as OnnxModel::types
};
// Those among the attributes of a node.
std::vector<OnnxBody> bodies_of(const OnnxNode& node);

// The nodes of the graphs among a node's attributes (branches, bodies), and of those in them.
std::vector<OnnxNode> nodes_in_bodies(const OnnxNode& node);

// Attributes as bytes.
std::string int_attribute(const char* name, std::int64_t value);
std::string float_attribute(const char* name, float value);
std::string text_attribute(const char* name, const std::string& value);
std::string texts_attribute(const char* name, const std::vector<std::string>& values);
std::string ints_attribute(const char* name, const std::vector<std::int64_t>& values);
std::string attribute_name(std::string_view attribute);
// The number of an attribute of one float or int; `otherwise` where the node has none of that name.
double attribute_number(const OnnxNode& node, std::string_view name, double otherwise);
// The numbers of an attribute of ints, or the text of one; empty where the node has none of that name.
std::vector<std::int64_t> attribute_ints(const OnnxNode& node, std::string_view name);
std::string attribute_text(const OnnxNode& node, std::string_view name);
// Whether the node has a body, as If and Loop do.
bool has_body(const OnnxNode& node);

inline OnnxValue tensor_value(std::string name, std::int32_t dtype, std::vector<std::int64_t> dims) {
  OnnxValue value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.has_shape = true;
  value.dims = std::move(dims);
  return value;
}
// A constant of floats or int64s, whose bytes go into `keep`, which outlives it.
inline OnnxTensor constant(std::string name, std::int32_t dtype, std::vector<std::int64_t> dims, std::string_view bytes) {
  OnnxTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.dims = std::move(dims);
  tensor.data = bytes;
  return tensor;
}

}  // namespace evn_train
