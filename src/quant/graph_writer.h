// What the rewrites that make an ONNX graph anew share: names that nobody has yet, constants and nodes.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph.h"
#include "graph/unique_names.h"

namespace evn {

// True for a node of one of these ONNX operators.
bool is_one_of(const Node& node, std::initializer_list<std::string_view> names);

class GraphWriter {
 public:
  GraphWriter(Graph& graph, LedgerPtr ledger);

  static std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }
  Value& value(ValueId v) { return graph_.values[at(v)]; }
  Graph& graph() { return graph_; }
  const LedgerPtr& ledger() const { return ledger_; }

  // What is new is called by a name and a suffix.
  ValueId add_value(const std::string& name, const char* suffix, DType dtype);
  ValueId add_constant(const std::string& name, const char* suffix, WeightPtr weight);
  // A constant of what lies at `bytes`.
  ValueId add_bytes(const std::string& name, const char* suffix, DType dtype, const Shape& shape, const void* bytes);
  ValueId add_floats(const std::string& name, const char* suffix, const Shape& shape, std::span<const float> numbers) {
    return add_bytes(name, suffix, DType::kFloat32, shape, numbers.data());
  }

  // The region of new nodes.
  void set_region(std::int32_t region) { region_ = region; }

  // Behind the nodes that the graph has now.
  void add_node(const char* op, const std::string& name, const char* suffix, std::span<const ValueId> inputs, ValueId output,
                const char* domain = "");
  // An attribute of the last node.
  void set_int(const char* name, std::int64_t value);
  void add_cast(const std::string& name, ValueId from, ValueId to, DType dtype);

  // Constants that nobody reads any more lose their bytes.
  void drop_unused_constants();

 private:
  Graph& graph_;
  LedgerPtr ledger_;
  std::int32_t region_ = -1;
  UniqueNames names_, node_names_;
};

}  // namespace evn
