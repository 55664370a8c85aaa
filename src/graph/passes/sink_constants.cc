// Constants that a body uses of the graphs around it become the body's own: there they are folded, packed and read by shape rules.
#include "graph/edit.h"
#include "graph/passes/rewrites.h"

namespace evn {

bool sink_constants(Graph& graph, const PassContext& context) {
  GraphEditor edit(graph);
  for (int n = 0; n < edit.node_count(); ++n) {
    check_deadline(context, static_cast<std::size_t>(n));
    Node& node = edit.node(n);
    if (node.captures == 0) continue;
    Graph& body = *node.body;
    const std::size_t outer_first = node.inputs.size() - static_cast<std::size_t>(node.captures);
    const std::size_t inner_first = body.inputs.size() - static_cast<std::size_t>(node.captures);
    std::vector<ValueId> outer, inner;  // those that stay
    for (std::size_t k = 0; k < static_cast<std::size_t>(node.captures); ++k) {
      const ValueId from = node.inputs[outer_first + k];
      Value& to = body.values[static_cast<std::size_t>(body.inputs[inner_first + k])];
      if (const WeightPtr& constant = edit.value(from).constant; constant != nullptr) {
        to.constant = constant;
        continue;
      }
      outer.push_back(from);
      inner.push_back(body.inputs[inner_first + k]);
    }
    if (outer.size() == static_cast<std::size_t>(node.captures)) continue;
    body.inputs.resize(inner_first);
    body.inputs.insert(body.inputs.end(), inner.begin(), inner.end());
    for (std::size_t k = 0; k < outer.size(); ++k) edit.set_input(n, static_cast<int>(outer_first + k), outer[k]);
    edit.shrink_inputs(n, static_cast<int>(outer_first + outer.size()));
    node.captures = static_cast<std::int32_t>(outer.size());
  }
  return edit.commit();
}

}  // namespace evn
