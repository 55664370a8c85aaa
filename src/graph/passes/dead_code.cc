// Takes away nodes whose outputs nobody uses, marks optional outputs that nobody reads as not wanted, and renumbers the values so
// that none is left without a use.
#include <algorithm>

#include "graph/edit.h"
#include "graph/passes/rewrites.h"
#include "ops/op.h"

namespace evn {
namespace {

// Nodes are in topological order: backwards, all readers of a node have been seen before it.
void remove_unused_nodes(GraphEditor& edit, const PassContext& context) {
  for (int n = edit.node_count() - 1; n >= 0; --n) {
    check_deadline(context, static_cast<std::size_t>(n));
    const Node& node = edit.node(n);
    const bool used =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return v != kNoValue && !edit.is_dead(v); });
    if (!used) edit.remove_node(n);
  }
}

void drop_unread_outputs(GraphEditor& edit) {
  for (int n = 0; n < edit.node_count(); ++n) {
    // The number of outputs of a variadic operator has a meaning (Split).
    if (edit.removed(n) || edit.node(n).op->max_outputs == kVariadic) continue;
    for (int i = edit.node(n).op->min_outputs; i < static_cast<int>(edit.node(n).outputs.size()); ++i) {
      const ValueId v = edit.node(n).outputs[i];
      if (v != kNoValue && edit.is_dead(v)) edit.set_output(n, i, kNoValue);
    }
  }
}

// Returns whether any value went.
bool renumber_values(Graph& graph) {
  std::vector<ValueId> number(graph.values.size(), kNoValue);
  const auto mark = [&](const std::vector<ValueId>& ids) {
    for (ValueId v : ids) {
      if (v != kNoValue) number[v] = 0;
    }
  };
  mark(graph.inputs);
  mark(graph.outputs);
  for (const Node& node : graph.nodes) {
    mark(node.inputs);
    mark(node.outputs);
  }
  ValueId next = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (number[v] == kNoValue) continue;
    if (static_cast<std::size_t>(next) != v) graph.values[next] = std::move(graph.values[v]);
    number[v] = next++;
  }
  if (static_cast<std::size_t>(next) == graph.values.size()) return false;
  graph.values.resize(next);
  const auto rename = [&](std::vector<ValueId>& ids) {
    for (ValueId& v : ids) {
      if (v != kNoValue) v = number[v];
    }
  };
  rename(graph.inputs);
  rename(graph.outputs);
  for (Node& node : graph.nodes) {
    rename(node.inputs);
    rename(node.outputs);
  }
  return true;
}

}  // namespace

bool dead_code(Graph& graph, const PassContext& context) {
  bool changed = false;
  {
    GraphEditor edit(graph);
    remove_unused_nodes(edit, context);
    drop_unread_outputs(edit);
    changed = edit.commit();
  }
  return renumber_values(graph) || changed;
}

}  // namespace evn
