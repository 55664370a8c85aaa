// Takes away nodes that hand their input on unchanged: Identity, Dropout outside training, casts and reshapes that change nothing,
// multiplications by one, sums over broadcast dims that there are none of. Names of graph outputs stay.
#include <cstring>

#include "graph/edit.h"
#include "graph/passes/rewrites.h"
#include "ops/gradient.h"
#include "ops/merge.h"
#include "ops/op.h"
#include "ops/transpose.h"

namespace evn {
namespace {

bool same_known_shape(const Value& a, const Value& b) {
  return a.has_shape && b.has_shape && a.shape.is_known() && a.shape == b.shape;
}

bool is_only_output(const GraphEditor& edit, const Node& node) {
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != kNoValue && !edit.is_dead(node.outputs[i])) return false;
  }
  return true;
}

// Training mode is an input from version 12 on; absent means inference.
bool drops_nothing(GraphEditor& edit, const Node& node) {
  if (!is_only_output(edit, node)) return false;
  if (node.inputs.size() < 3 || node.inputs[2] == kNoValue) return true;
  const Weight* training = edit.value(node.inputs[2]).constant.get();
  return training != nullptr && training->size_bytes == 1 && *training->as<char>() == 0;
}

bool keeps_order(const Node& node, const Value& x) {
  if (!x.has_shape) return false;
  int perm[kMaxRank];
  transpose_perm(node, x.shape.rank(), perm);
  for (int i = 0; i < x.shape.rank(); ++i) {
    if (perm[i] != i) return false;
  }
  return true;
}

// Which input the node hands on unchanged; -1: none.
int handed_on(GraphEditor& edit, const Node& node) {
  if (node.domain == kInternalDomain && (node.op_type == kSumTo || node.op_type == kRepeatTo)) {
    return same_known_shape(edit.value(node.inputs[1]), edit.value(node.outputs[0])) ? 1 : -1;
  }
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.empty() || !node.epilogue.empty()) return -1;
  if (node.outputs[0] == kNoValue || node.inputs[0] == kNoValue) return -1;
  const Value& x = edit.value(node.inputs[0]);
  const Value& y = edit.value(node.outputs[0]);
  const std::string& op = node.op_type;
  if (op == "Identity") return 0;
  if (op == "Dropout") return drops_nothing(edit, node) ? 0 : -1;
  if (op == "Cast") return x.dtype == y.dtype ? 0 : -1;
  if (op == "Concat" || op == "Sum" || op == "Max" || op == "Min") return node.inputs.size() == 1 ? 0 : -1;
  if (op == "Transpose") return keeps_order(node, x) ? 0 : -1;
  if (op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze" || op == "Expand") {
    return same_known_shape(x, y) ? 0 : -1;
  }
  if (op != "Mul" && op != "Div") return -1;
  float factor = 0;
  if (scalar_constant(edit.graph(), node.inputs[1], value_rank(x), &factor) && factor == 1.0f) return 0;
  if (op == "Div" || node.inputs[1] == kNoValue) return -1;
  const int rank = value_rank(edit.value(node.inputs[1]));
  return scalar_constant(edit.graph(), node.inputs[0], rank, &factor) && factor == 1.0f ? 1 : -1;
}

// `x` -> node -> `y`. False when the graph's own names stand in the way.
bool bypass(GraphEditor& edit, int n, ValueId x, ValueId y) {
  if (!edit.is_output(y)) {
    edit.replace_uses(y, x);
    edit.remove_node(n);
    return true;
  }
  // The output's name must stay: what computes x writes y instead.
  const int producer = edit.producer(x);
  if (producer < 0 || edit.is_output(x)) return false;
  edit.remove_node(n);
  edit.replace_uses(x, y);
  edit.set_output(producer, edit.output_index(x), y);
  return true;
}

}  // namespace

bool eliminate_identity(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  for (int n = 0; n < edit.node_count(); ++n) {
    check_deadline(context, static_cast<std::size_t>(n));
    const Node& node = edit.node(n);
    const int input = handed_on(edit, node);
    if (input >= 0) bypass(edit, n, node.inputs[input], node.outputs[0]);
  }
  return edit.commit();
}

}  // namespace evn
