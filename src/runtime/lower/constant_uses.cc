#include "runtime/lower/constant_uses.h"

namespace evn {

ConstantUses::ConstantUses(const CompiledGraph& c) : c_(c), plain_(*c.model) {
  const Graph& graph = c.graph();
  for (const Node& node : graph.nodes) {
    for (const ValueId v : node.inputs) add(graph, v);
    if (node.body != nullptr) add_body(*node.body);
  }
  for (const ValueId v : graph.outputs) add(graph, v);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (c.needed[v]) add(graph, static_cast<ValueId>(v));
  }
}

void ConstantUses::add(const Graph& graph, ValueId v) {
  const Weight* w = v == kNoValue ? nullptr : graph.values[v].constant.get();
  if (w != nullptr && plain_.may_go(*w)) ++left_[w];
}

// Bodies are models of their own, which keep the constants that they cannot bring back.
void ConstantUses::add_body(const Graph& body) {
  for (std::size_t v = 0; v < body.values.size(); ++v) {
    const Weight* const w = body.values[v].constant.get();
    if (w != nullptr && !PlainWeights::Access::may_go_in_bodies(*c_.model, *w)) add(body, static_cast<ValueId>(v));
  }
  for (const Node& node : body.nodes) {
    if (node.body != nullptr) add_body(*node.body);
  }
}

void ConstantUses::done(ValueId v, bool packed) {
  const Weight* w = v == kNoValue ? nullptr : c_.graph().values[v].constant.get();
  if (w == nullptr || !plain_.may_go(*w)) return;
  if (!packed) {
    plain_.keep(*w);
  } else if (--left_[w] == 0) {
    plain_.let_go(*w);
  }
}

void ConstantUses::set_constants(std::vector<ConstTensor>* constants) {
  for (std::size_t v = 0; v < constants->size(); ++v) {
    const Weight* w = c_.graph().values[v].constant.get();
    if (w == nullptr) continue;
    const auto left = left_.find(w);
    const bool all_packed = left != left_.end() && left->second == 0;
    if (left != left_.end() && !all_packed) plain_.keep(*w);
    (*constants)[v] = {w->desc, all_packed ? nullptr : w->data.get()};
  }
}

}  // namespace evn
