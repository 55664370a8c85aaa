#include "quant/graph_writer.h"

#include <algorithm>

#include "base/cancel.h"
#include "graph/subgraphs.h"

namespace evn {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> names) {
  return node.domain.empty() && std::find(names.begin(), names.end(), node.op_type) != names.end();
}

GraphWriter::GraphWriter(Graph& graph, LedgerPtr ledger) : graph_(graph), ledger_(std::move(ledger)) {
  for (const Value& v : graph.values) names_.take(v.name);
  for (const Node& n : graph.nodes) node_names_.take(n.name);
}

ValueId GraphWriter::add_value(const std::string& name, const char* suffix, DType dtype) {
  Value v;
  v.name = names_.make(name + suffix);
  v.dtype = dtype;
  graph_.values.push_back(std::move(v));
  return static_cast<ValueId>(graph_.values.size() - 1);
}

ValueId GraphWriter::add_constant(const std::string& name, const char* suffix, WeightPtr weight) {
  const ValueId id = add_value(name, suffix, weight->desc.dtype);
  Value& v = value(id);
  v.has_shape = true;
  v.shape = weight->desc.shape;
  v.constant = std::move(weight);
  return id;
}

ValueId GraphWriter::add_bytes(const std::string& name, const char* suffix, DType dtype, const Shape& shape, const void* bytes) {
  void* to = nullptr;
  WeightPtr weight = make_unfilled_weight({dtype, shape}, ledger_, &to);
  move_in_pieces(to, bytes, weight->size_bytes);
  return add_constant(name, suffix, std::move(weight));
}

void GraphWriter::add_node(const char* op, const std::string& name, const char* suffix, std::span<const ValueId> inputs,
                           ValueId output, const char* domain) {
  Node n;
  n.name = node_names_.make(name + suffix);
  n.op_type = op;
  n.domain = domain;
  n.region = region_;
  n.inputs.assign(inputs.begin(), inputs.end());
  n.outputs.push_back(output);
  graph_.nodes.push_back(std::move(n));
}

void GraphWriter::set_int(const char* name, std::int64_t value) { add_int(graph_.nodes.back(), name, value); }

void GraphWriter::add_cast(const std::string& name, ValueId from, ValueId to, DType dtype) {
  add_node("Cast", name, "_Cast", {&from, 1}, to);
  set_int("to", static_cast<std::int64_t>(dtype));
}

void GraphWriter::drop_unused_constants() {
  std::vector<bool> read(graph_.values.size());
  for (const Node& n : graph_.nodes) {
    cancellation_point(kNodeWork);
    for (const ValueId v : n.inputs) {
      if (v != kNoValue) read[at(v)] = true;
    }
  }
  for (const ValueId v : graph_.outputs) read[at(v)] = true;
  for (std::size_t v = 0; v < read.size(); ++v) {
    cancellation_point();
    if (!read[v]) graph_.values[v].constant = nullptr;
  }
}

}  // namespace evn
