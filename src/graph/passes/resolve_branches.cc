// Takes away Ifs whose condition is a constant: the nodes of the branch that is taken join their surroundings, Merges become
// Identity, and nobody reads what the other branch makes.
#include "graph/edit.h"
#include "graph/passes/rewrites.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::int32_t kOpen = -2;

// Per region that a constant decides: where its nodes go; else kOpen.
std::vector<std::int32_t> decided_regions(const Graph& graph) {
  std::vector<std::int32_t> to(graph.regions.size(), kOpen);
  for (const Node& node : graph.nodes) {
    if (!is_merge(node)) continue;
    const Weight* condition = graph.values[node.inputs[0]].constant.get();
    if (condition == nullptr || condition->size_bytes != 1) continue;
    const int taken = 2 * merge_number(node) + (*condition->as<std::uint8_t>() != 0 ? 0 : 1);
    to[static_cast<std::size_t>(taken)] = graph.regions[static_cast<std::size_t>(taken)].parent;
  }
  return to;
}

}  // namespace

bool resolve_branches(Graph& graph, const PassContext& context) {
  if (graph.regions.empty()) return false;
  const std::vector<std::int32_t> to = decided_regions(graph);
  const auto move = [&](std::int32_t region) {
    while (region >= 0 && to[static_cast<std::size_t>(region)] != kOpen) region = to[static_cast<std::size_t>(region)];
    return region;
  };
  bool changed = false;
  for (Node& node : graph.nodes) {
    check_deadline(context);
    node.region = move(node.region);
    if (!is_merge(node)) continue;
    const Weight* condition = graph.values[node.inputs[0]].constant.get();
    if (condition == nullptr || condition->size_bytes != 1) continue;
    const ValueId chosen = node.inputs[*condition->as<std::uint8_t>() != 0 ? 1 : 2];
    node.op = find_op("", "Identity", 1);
    node.op_type = "Identity";
    node.domain.clear();
    node.resolved.clear();
    node.inputs = {chosen};
    changed = true;
  }
  for (Region& region : graph.regions) region.parent = move(region.parent);
  return changed;
}

}  // namespace evn
