// Puts inputs, constants, nodes and outputs at the end of a graph that has yet to be checked (graph/validate.h). Names of what is
// put in begin with "evener/".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/graph.h"
#include "graph/attributes.h"

namespace evn {

class NodeWriter {
 public:
  explicit NodeWriter(Graph* graph) : graph_(*graph) {}

  const std::string& name(ValueId v) const { return graph_.values[static_cast<std::size_t>(v)].name; }

  // `shape`: nothing where the rank is not known.
  ValueId add_input(std::string name, DType dtype, const std::optional<Shape>& shape);
  // Declares a value of the graph as an input.
  void declare_input(ValueId v, DType dtype, const std::optional<Shape>& shape);
  // Adds a value that a node will make.
  ValueId add_value(std::string name);
  // Declares `v` as an output of the graph.
  void add_output(ValueId v, DType dtype, const std::optional<Shape>& shape);
  // Adds a copy of `v` under this name as an output.
  void add_output_as(std::string name, ValueId v, DType dtype, const std::optional<Shape>& shape);

  std::vector<ValueId> ops(const char* op, std::vector<ValueId> inputs, std::size_t outputs, std::vector<Attribute> attributes = {},
                           const char* domain = "");
  ValueId op(const char* op, std::vector<ValueId> inputs, std::vector<Attribute> attributes = {}) {
    return ops(op, std::move(inputs), 1, std::move(attributes))[0];
  }

  ValueId add_constant(std::string name, WeightPtr weight, Origin origin = Origin::kUnknown);
  // Constants of rank 0.
  ValueId number(float value);
  ValueId integer(std::int64_t value);
  ValueId flag(bool value);
  // A constant of rank 1.
  ValueId integers(const std::vector<std::int64_t>& values);

  ValueId cast(ValueId v, DType dtype) { return op("Cast", {v}, {make_attribute("to", static_cast<std::int64_t>(dtype))}); }
  // Reductions over all elements.
  ValueId mean(ValueId v) { return op("ReduceMean", {v}, {make_attribute("keepdims", 0)}); }
  ValueId sum(ValueId v) { return op("ReduceSum", {v}, {make_attribute("keepdims", 0)}); }

 private:
  Graph& graph_;

  void declare(ValueId v, DType dtype, const std::optional<Shape>& shape);
  ValueId constant(const TensorDesc& desc, const void* bytes);
  Node& add_node(const char* op, std::vector<ValueId> inputs);
};

}  // namespace evn
