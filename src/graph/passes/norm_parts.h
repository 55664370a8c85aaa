// What the patterns of normalizations over the last axis have in common.
#pragma once

#include "graph/passes/match.h"
#include "ops/reduce.h"

namespace evn {

// Whether node n is the mean over the last axis, kept as an axis of 1.
inline bool is_last_mean(GraphEditor& edit, int n) {
  const Node& node = edit.node(n);
  if (node.inputs.empty() || node.inputs[0] == kNoValue || attr_int(node, ReduceAttr::kKeepDims) == 0) return false;
  const int rank = value_rank(edit.value(node.inputs[0]));
  if (rank < 1) return false;
  std::vector<std::int64_t> axes;
  if (reduce_axes_is_input(node)) {
    if (node.inputs.size() < 2 || !int_constant(edit.graph(), node.inputs[1], &axes)) return false;
  }
  return reduce_axes(node, rank, axes) == 1u << (rank - 1);
}

// Returns the constant of one axis, as long as x's last, with which node n combines v; kNoValue: none. The last dim must be known:
// one of 1 in a run would be broadcast to the constant's length.
inline ValueId row_operand(GraphEditor& edit, const Matcher& match, int n, const char* op_type, ValueId v, ValueId x) {
  const Shape& whole = edit.value(x).shape;
  if (!match.is(n, op_type) || value_rank(edit.value(x)) < 1) return kNoValue;
  const ValueId row = match.beside(n, v);
  if (row == kNoValue || edit.value(row).constant == nullptr) return kNoValue;
  const Shape& shape = edit.value(row).constant->desc.shape;
  return shape.rank() == 1 && shape[0] > 1 && whole[whole.rank() - 1] == shape[0] ? row : kNoValue;
}

}  // namespace evn
