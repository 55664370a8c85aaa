#include "runtime/loaded/removed_nodes.h"

#include <functional>
#include <string_view>
#include <unordered_set>

#include "base/cancel.h"

namespace evn {
namespace {

struct Present {
  std::string_view name, op_type;
  bool operator==(const Present& other) const { return name == other.name && op_type == other.op_type; }
};

struct Hash {
  std::size_t operator()(const Present& p) const { return std::hash<std::string_view>()(p.name); }
};

// Calls take(node) for the nodes of a graph and of its bodies.
template <typename F>
void for_all_nodes(const Graph& graph, const F& take) {
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    take(node);
    if (node.body != nullptr) for_all_nodes(*node.body, take);
  }
}

}  // namespace

std::vector<RemovedNode> list_nodes(const Graph& graph) {
  std::vector<RemovedNode> nodes;
  for_all_nodes(graph, [&](const Node& node) { nodes.push_back({node.name, node.op_type, node.domain}); });
  return nodes;
}

void drop_present(const Graph& graph, std::vector<RemovedNode>* nodes) {
  std::unordered_set<Present, Hash> present;
  for_all_nodes(graph, [&](const Node& node) { present.insert({node.name, node.op_type}); });
  std::erase_if(*nodes, [&](const RemovedNode& node) {
    cancellation_point(kNodeWork);
    return present.contains({node.name, node.op_type});
  });
  nodes->shrink_to_fit();
}

}  // namespace evn
