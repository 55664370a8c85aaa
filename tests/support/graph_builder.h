// Builds small graphs for tests, as graph/validate leaves them: operators found, attributes resolved, nodes in order.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace evn::test {

// A plain generator, so that random weights are the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(next() >> 40) / 16777216.0f; }

 private:
  std::uint64_t state_;
};

// "com.microsoft::FastGelu" -> the domain and the name; without "::" the domain is ONNX's.
inline std::pair<std::string, std::string> split_domain(const std::string& op) {
  const std::size_t at = op.find("::");
  if (at == std::string::npos) return {"", op};
  return {op.substr(0, at), op.substr(at + 2)};
}

class GraphBuilder {
 public:
  explicit GraphBuilder(int opset = 13) : opset_(opset) {}

  // Dims of -1 are unknown.
  ValueId input(const std::string& name, Shape shape, DType dtype = DType::kFloat32) {
    const ValueId v = value(name, dtype);
    graph_.values[v].has_shape = true;
    graph_.values[v].shape = shape;
    graph_.inputs.push_back(v);
    return v;
  }

  template <typename T>
  ValueId constant(const std::string& name, Shape shape, const std::vector<T>& elements) {
    const ValueId v = value(name, kDTypeOf<T>);
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({kDTypeOf<T>, shape}, nullptr, &bytes);
    EXPECT_EQ(weight->size_bytes, elements.size() * sizeof(T)) << name;
    if (weight->size_bytes == elements.size() * sizeof(T) && !elements.empty()) {
      std::memcpy(bytes, elements.data(), weight->size_bytes);
    }
    graph_.values[v].has_shape = true;
    graph_.values[v].shape = shape;
    graph_.values[v].constant = std::move(weight);
    return v;
  }

  ValueId scalar(float x) { return constant<float>("scalar_" + std::to_string(graph_.values.size()), Shape{}, {x}); }
  ValueId ints(const std::vector<std::int64_t>& v) {
    return constant<std::int64_t>("ints_" + std::to_string(graph_.values.size()), Shape{static_cast<std::int64_t>(v.size())}, v);
  }

  ValueId random(const std::string& name, Shape shape, float low = -1, float high = 1) {
    Random random(graph_.values.size() + 1);
    std::vector<float> elements(static_cast<std::size_t>(shape.elements()));
    for (float& e : elements) e = random.uniform(low, high);
    return constant<float>(name, shape, elements);
  }

  // The node's first output; its name is the node's. An empty name is made up.
  ValueId node(const std::string& op_type, const std::vector<ValueId>& inputs, std::vector<Attribute> attributes = {},
               std::string name = "") {
    return nodes(op_type, inputs, 1, std::move(attributes), std::move(name)).front();
  }

  std::vector<ValueId> nodes(const std::string& op_type, const std::vector<ValueId>& inputs, int outputs,
                             std::vector<Attribute> attributes = {}, std::string name = "") {
    Node n;
    n.name = name.empty() ? op_type + "_" + std::to_string(graph_.nodes.size()) : std::move(name);
    std::tie(n.domain, n.op_type) = split_domain(op_type);
    n.since_version = opset_;
    n.inputs = inputs;
    n.attributes = std::move(attributes);
    n.op = find_op(n.domain, n.op_type, opset_);
    EXPECT_NE(n.op, nullptr) << op_type << " at opset " << opset_;
    if (n.op != nullptr) resolve(n);
    for (int i = 0; i < outputs; ++i) {
      n.outputs.push_back(value(i == 0 ? n.name : n.name + ":" + std::to_string(i), DType::kUndefined));
    }
    graph_.nodes.push_back(n);
    return n.outputs;
  }

  void output(ValueId v) { graph_.outputs.push_back(v); }
  Graph& graph() { return graph_; }
  Graph build() { return graph_; }

 private:
  ValueId value(const std::string& name, DType dtype) {
    Value v;
    v.name = name;
    v.dtype = dtype;
    graph_.values.push_back(std::move(v));
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  static AttributeValue default_of(const AttributeSpec& spec) {
    if (spec.type == AttributeType::kInt) return spec.default_int;
    if (spec.type == AttributeType::kFloat) return spec.default_float;
    if (spec.type == AttributeType::kString && spec.default_string != nullptr) return std::string(spec.default_string);
    return {};
  }

  static void resolve(Node& n) {
    for (const AttributeSpec& spec : n.op->attributes) {
      AttributeValue value = default_of(spec);
      for (const Attribute& a : n.attributes) {
        if (a.name == spec.name) value = a.value;
      }
      n.resolved.push_back(std::move(value));
    }
  }

  Graph graph_;
  int opset_;
};

}  // namespace evn::test
