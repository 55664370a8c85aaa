// What is known of the values of a graph before a run.
#include <algorithm>

#include "runtime/placement/placement.h"

namespace evn {

std::vector<bool> values_needed_for_shapes(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const bool shapes_depend =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return v != kNoValue && needed[v]; });
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId v = node.inputs[k];
      if (v == kNoValue || graph.values[v].constant != nullptr) continue;
      const bool by_value = node.op->reads_value(k);
      const bool by_chain = shapes_depend && (node.op->flags & kOpShapeOnly) == 0 && !runs_on_host(graph, node);
      if (by_value || by_chain) needed[v] = true;
    }
  }
  return needed;
}

std::vector<bool> values_known_before_run(const Graph& graph) {
  std::vector<bool> known(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v) known[v] = graph.values[v].constant != nullptr;
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.values[v];
    const bool is_float = (kFloats >> static_cast<int>(value.dtype) & 1) != 0 || is_16bit_float(value.dtype);
    const bool never = value.wraps || value.dtype == DType::kString;
    known[v] = !never && (!is_float || (value.has_shape && value.shape.rank() <= 1));  // a list of scales, say
  }
  for (const Node& node : graph.nodes) {
    bool all = !runs_on_host(graph, node) && (node.op->flags & kOpRandom) == 0;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool by_shape = k == 0 && (node.op->flags & kOpShapeOnly) != 0;
      all = all && (by_shape || node.inputs[k] == kNoValue || known[node.inputs[k]]);
    }
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) known[v] = all;
    }
  }
  return known;
}

}  // namespace evn
