// The model that a trainer is given, as its parts look at it.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "base/cancel.h"
#include "base/ledger.h"
#include "core/graph.h"
#include "graph/attributes.h"
#include "graph/bodies.h"
#include "graph/function_calls.h"

namespace evn_train {

using evn::DType;
using evn::for_each_body;
using evn::Graph;
using evn::has_graph_attribute;
using evn::kNoValue;
using evn::Node;
using evn::Value;
using evn::ValueId;

// Nodes are in order, bodies are attributes (graph/subgraphs.h) whose values have no name of another graph's but where they are
// that graph's, and values that nodes make have their dtypes.
struct SourceModel {
  evn::Model model;
  std::set<std::uint64_t> literals{};    // Weight::id of what were outputs of Constant nodes
  evn::LedgerPtr ledger{};               // to which weights are charged
  std::set<std::size_t> frozen_norms{};  // nodes of BatchNormalization that options freeze, by separate_statistics (graphs.h)
};

inline constexpr std::int64_t kValueWork = 16;  // a value is looked up by its name

inline std::size_t at(ValueId v) { return static_cast<std::size_t>(v); }

inline const std::string& name_of(const Graph& graph, ValueId v) {
  static const std::string kNone;
  return v == kNoValue ? kNone : graph.values[at(v)].name;
}

// A constant of float32.
inline bool is_float_constant(const Value& v) { return v.constant != nullptr && v.constant->desc.dtype == DType::kFloat32; }
// One with elements.
inline bool has_floats(const Value& v) { return is_float_constant(v) && v.constant->size_bytes > 0; }

inline bool is_float_type(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || evn::is_16bit_float(dtype);
}
// True for a value made by a node that is known to be a tensor of integers, flags, bytes or text.
inline bool is_no_float(const Value& v) { return !v.wraps && v.dtype != DType::kUndefined && !is_float_type(v.dtype); }

inline bool is_batch_norm(const Node& node) {
  return node.op_type == "BatchNormalization" && node.domain.empty() && node.inputs.size() == 5;
}

// A node in its graph, which has the names of what it reads and makes.
struct NodeAt {
  const Graph* graph = nullptr;
  const Node* node = nullptr;

  const std::string& input(std::size_t i) const { return name_of(*graph, node->inputs[i]); }
  const std::string& output(std::size_t i) const { return name_of(*graph, node->outputs[i]); }
};

// Calls f(NodeAt) for the nodes of the graphs among a node's attributes, and of those in them.
template <typename F>
void for_each_inner(const Node& node, F&& f) {
  for_each_body(node.attributes, [&](const Graph& body) {
    for (const Node& inner : body.nodes) {
      evn::cancellation_point(evn::kNodeWork);
      for_each_inner(inner, f);
      f(NodeAt{&body, &inner});
    }
  });
}
// Calls f(NodeAt) for all nodes of a graph; nodes of a node's graphs come behind the node.
template <typename F>
void for_each_node(const Graph& graph, F&& f) {
  for (const Node& node : graph.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    f(NodeAt{&graph, &node});
    for_each_inner(node, f);
  }
}

}  // namespace evn_train
