// x + x * g  ->  x * (g + 1), where g is broadcast along some axis of x: one pass over the large tensor instead of two, and the
// addition to g becomes a step of what computes g. Squeeze-and-excitation blocks with a residual connection have this form.
// The result differs by the rounding of one addition. g is never negative: x and x * g would have different signs, and their sum
// would be NaN for an infinite x, and infinite for an x * g that overflows. An infinite x whose gate is exactly 0 gives infinity
// here and NaN in the graph (docs/decisions/0045-numerics.md).
#include <algorithm>
#include <iterator>
#include <utility>

#include "graph/edit.h"
#include "graph/passes/epilogue_ops.h"
#include "graph/passes/match.h"
#include "graph/passes/rewrites.h"

namespace evn {
namespace {

// g has fewer elements than x: it is of the same rank, and of one element along an axis where x has, or may have, more.
bool is_broadcast(const Value& g, const Value& x) {
  if (!g.has_shape || !x.has_shape || g.shape.rank() != x.shape.rank()) return false;
  bool smaller = false;
  for (int i = 0; i < g.shape.rank(); ++i) {
    if (g.shape[i] == 1 && x.shape[i] != 1) smaller = true;
    else if (g.shape[i] != x.shape[i]) return false;
  }
  return smaller;
}

// Returns true if the node computes no negative numbers.
bool is_nonnegative(const Graph& graph, const Node& node) {
  if (!node.epilogue.empty()) {
    const EpilogueOp& last = node.epilogue.ops[node.epilogue.count - 1];
    return last.kind == EpilogueOpKind::kRelu || last.kind == EpilogueOpKind::kSigmoid ||
           last.kind == EpilogueOpKind::kHardSigmoid || (last.kind == EpilogueOpKind::kClip && last.a >= 0 && last.b >= 0);
  }
  float low = 0, high = 0;
  if (clip_bounds(graph, node, &low, &high)) return low >= 0 && high >= 0;
  constexpr const char* kNonnegative[] = {"Sigmoid", "HardSigmoid", "Relu", "Softmax"};
  return std::any_of(std::begin(kNonnegative), std::end(kNonnegative), [&](const char* op) { return is_op(node, op); });
}

// Fills `one` when it is first needed.
ValueId one_constant(GraphEditor& edit, const PassContext& context, ValueId* one) {
  if (*one == kNoValue) {
    void* bytes = nullptr;
    std::shared_ptr<Weight> weight = make_weight({DType::kFloat32, Shape{}}, context.ledger, &bytes);
    *static_cast<float*>(bytes) = 1.0f;
    *one = edit.add_constant("one", std::move(weight));
  }
  return *one;
}

}  // namespace

bool fold_gate(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  const Matcher match(edit);
  ValueId one = kNoValue;
  for (int add = 0; add < edit.node_count(); ++add) {
    check_deadline(context, static_cast<std::size_t>(add));
    if (!match.is(add, "Add") || edit.node(add).inputs.size() != 2) continue;
    for (int side = 0; side < 2; ++side) {
      const ValueId product = edit.node(add).inputs[side];
      const ValueId x = edit.node(add).inputs[1 - side];
      const int mul = match.maker(product, "Mul", 1);
      const ValueId gate = mul < 0 ? kNoValue : match.beside(mul, x);
      if (gate == kNoValue || !is_broadcast(edit.value(gate), edit.value(x))) continue;
      const int made_by = edit.producer(gate);
      if (made_by < 0 || !is_nonnegative(graph, edit.node(made_by))) continue;
      // The two nodes change places: the small addition where the multiplication was.
      if (!match.set_op(mul, "Add", 7) || !match.set_op(add, "Mul", 7)) return edit.commit();
      edit.set_input(mul, 0, gate);
      edit.set_input(mul, 1, one_constant(edit, context, &one));
      std::swap(edit.node(mul).name, edit.node(add).name);
      break;
    }
  }
  return edit.commit();
}

}  // namespace evn
