#include "graph/node_writer.h"

#include <cstring>
#include <utility>

namespace evn {

ValueId NodeWriter::add_value(std::string name) {
  graph_.values.emplace_back().name = std::move(name);
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId NodeWriter::add_input(std::string name, DType dtype, const std::optional<Shape>& shape) {
  const ValueId v = add_value(std::move(name));
  declare_input(v, dtype, shape);
  return v;
}

void NodeWriter::declare_input(ValueId v, DType dtype, const std::optional<Shape>& shape) {
  declare(v, dtype, shape);
  graph_.inputs.push_back(v);
}

void NodeWriter::declare(ValueId v, DType dtype, const std::optional<Shape>& shape) {
  Value& value = graph_.values[static_cast<std::size_t>(v)];
  value.dtype = dtype;
  value.has_shape = shape.has_value();
  value.shape = shape.value_or(Shape());
}

void NodeWriter::add_output(ValueId v, DType dtype, const std::optional<Shape>& shape) {
  declare(v, dtype, shape);
  graph_.outputs.push_back(v);
}

void NodeWriter::add_output_as(std::string name, ValueId v, DType dtype, const std::optional<Shape>& shape) {
  const ValueId copy = add_value(std::move(name));
  add_node("Identity", {v}).outputs = {copy};
  add_output(copy, dtype, shape);
}

Node& NodeWriter::add_node(const char* op, std::vector<ValueId> inputs) {
  std::string name = "evener/" + std::string(op) + "_" + std::to_string(graph_.nodes.size());
  Node& node = graph_.nodes.emplace_back();
  node.name = std::move(name);
  node.op_type = op;
  node.inputs = std::move(inputs);
  return node;
}

std::vector<ValueId> NodeWriter::ops(const char* op, std::vector<ValueId> inputs, std::size_t outputs,
                                     std::vector<Attribute> attributes, const char* domain) {
  Node& node = add_node(op, std::move(inputs));
  node.domain = domain;
  node.attributes = std::move(attributes);
  for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(add_value(node.name + ":" + std::to_string(i)));
  return node.outputs;
}

ValueId NodeWriter::add_constant(std::string name, WeightPtr weight, Origin origin) {
  const ValueId v = add_value(std::move(name));
  declare(v, weight->desc.dtype, weight->desc.shape);
  graph_.values.back().origin = origin;
  graph_.values.back().constant = std::move(weight);
  return v;
}

ValueId NodeWriter::constant(const TensorDesc& desc, const void* bytes) {
  void* to = nullptr;
  const std::shared_ptr<Weight> weight = make_unfilled_weight(desc, nullptr, &to);
  if (weight->size_bytes > 0) std::memcpy(to, bytes, weight->size_bytes);
  return add_constant("evener/constant_" + std::to_string(graph_.values.size()), weight);
}

ValueId NodeWriter::number(float value) { return constant({DType::kFloat32, {}}, &value); }
ValueId NodeWriter::integer(std::int64_t value) { return constant({DType::kInt64, {}}, &value); }
ValueId NodeWriter::flag(bool value) { return constant({DType::kBool, {}}, &value); }
ValueId NodeWriter::integers(const std::vector<std::int64_t>& values) {
  return constant({DType::kInt64, {static_cast<std::int64_t>(values.size())}}, values.data());
}

}  // namespace evn
