// A graph for tests of the quantizer, as it comes from a model: operators are not looked up.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quant/layers.h"

namespace evn::test {

struct PlainGraph {
  Graph graph;

  // A float32 value; `constant`, nullable: its bytes.
  ValueId value(const std::string& name, const Shape& shape, WeightPtr constant = nullptr) {
    Value v;
    v.name = name;
    v.dtype = DType::kFloat32;
    v.has_shape = true;
    v.shape = shape;
    v.constant = std::move(constant);
    graph.values.push_back(std::move(v));
    return static_cast<ValueId>(graph.values.size() - 1);
  }
  void node(const char* op, const std::string& name, std::vector<ValueId> inputs, ValueId output,
            std::vector<Attribute> attributes = {}) {
    Node n;
    n.name = name;
    n.op_type = op;
    n.inputs = std::move(inputs);
    n.outputs = {output};
    n.attributes = std::move(attributes);
    graph.nodes.push_back(std::move(n));
  }
};

}  // namespace evn::test
