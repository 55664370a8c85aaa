// All nodes of a graph on one device, and what nodes are on every device.
#include <algorithm>

#include "ops/merge.h"
#include "runtime/placement/node_view.h"
#include "runtime/placement/placement.h"

namespace evn {

NodeMode settled_mode(const Graph& graph, const Node& node, const std::vector<bool>& needed, const std::vector<bool>& known) {
  if (runs_on_host(graph, node)) return NodeMode::kHost;
  const auto planned = [&](ValueId v) { return v != kNoValue && needed[v] && known[v]; };
  if (std::any_of(node.outputs.begin(), node.outputs.end(), planned)) return NodeMode::kPlanned;
  return is_merge(node) ? NodeMode::kMerge : NodeMode::kKernel;
}

Placement place_on(const Graph& graph, Device& device) {
  const std::vector<bool> needed = values_needed_for_shapes(graph);
  const std::vector<bool> known = values_known_before_run(graph);
  Placement result;
  result.nodes.resize(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    NodePlacement& p = result.nodes[i];
    p.device = &device;
    p.numerics = Numerics::kFast;
    p.mode = settled_mode(graph, node, needed, known);
    if (p.mode != NodeMode::kKernel) continue;
    if ((node.op->flags & kOpView) != 0 && node.epilogue.empty()) {
      p.mode = NodeMode::kView;
      continue;
    }
    const NodeView view(graph, node);
    const OpDesc desc = view.desc(node);
    if (!view.ranks_known) {
      p.kernel = device.reference_kernel(desc);
    } else if (const Claim claim = device.claim({&desc, 1}); !claim.segments.empty()) {
      p.kernel = claim.segments[0].kernel;
    }
    if (p.kernel == nullptr) p.mode = NodeMode::kHost;
  }
  return result;
}

}  // namespace evn
