// See subgraphs.h.
#include <algorithm>
#include <utility>

#include "base/cancel.h"
#include "base/error.h"
#include "core/name_map.h"
#include "graph/subgraphs.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr const char* kEnter = "Enter";
constexpr const char* kRegion = "evener.region";  // attribute of a node that had a body

class Flattener {
 public:
  explicit Flattener(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      cancellation_point(kNodeWork);
      add(std::move(node));
    }
  }

 private:
  Graph& graph_;

  void add(Node node) {
    if (node.body != nullptr) add_body(node);
    graph_.nodes.push_back(std::move(node));
  }

  void add_body(Node& node) {
    const std::shared_ptr<Graph> taken = std::exchange(node.body, nullptr);
    Graph& body = *taken;
    const auto captures = static_cast<std::size_t>(node.captures), own = body.inputs.size() - captures;
    const std::size_t outer = node.inputs.size() - captures;
    const auto region = static_cast<std::int32_t>(graph_.regions.size());
    graph_.regions.push_back({node.region});
    graph_.regions.push_back({node.region});  // numbers of Merge nodes are those of pairs
    const auto inner = static_cast<std::int32_t>(graph_.regions.size());
    for (const Region& r : body.regions) {
      cancellation_point();
      graph_.regions.push_back({r.parent < 0 ? region : inner + r.parent});
    }
    std::vector<ValueId> ids(body.values.size(), kNoValue);
    for (std::size_t k = 0; k < captures; ++k) {
      cancellation_point();
      ids[static_cast<std::size_t>(body.inputs[own + k])] = node.inputs[outer + k];
    }
    for (std::size_t v = 0; v < ids.size(); ++v) {
      cancellation_point(kNameWork);
      if (ids[v] != kNoValue) continue;
      if (graph_.values.size() >= INT32_MAX) fail(EVN_ERROR_LIMIT, "the graph has too many values");
      ids[v] = static_cast<ValueId>(graph_.values.size());
      graph_.values.push_back(std::move(body.values[v]));
    }
    const auto rename = [&](std::vector<ValueId>& values) {
      for (ValueId& v : values) {
        cancellation_point();
        if (v != kNoValue) v = ids[static_cast<std::size_t>(v)];
      }
    };
    Node enter;
    enter.name = node.name + "/inputs";
    enter.op_type = kEnter;
    enter.domain = kInternalDomain;
    enter.region = region;
    enter.outputs = std::move(body.inputs);
    enter.outputs.resize(own);
    rename(enter.outputs);
    graph_.nodes.push_back(std::move(enter));
    for (Node& n : body.nodes) {
      cancellation_point(kNodeWork);
      rename(n.inputs);
      rename(n.outputs);
      n.region = n.region < 0 ? region : inner + n.region;
      if (is_merge(n)) n.resolved[0] = static_cast<std::int64_t>(merge_number(n) + inner / 2);
      add(std::move(n));
    }
    rename(body.outputs);
    node.inputs.resize(outer);
    node.inputs.insert(node.inputs.end(), body.outputs.begin(), body.outputs.end());
    node.captures = static_cast<std::int32_t>(body.outputs.size());
    add_int(node, kRegion, region);
  }
};

}  // namespace

void add_int(Node& node, const char* name, std::int64_t value) {
  Attribute& a = node.attributes.emplace_back();
  a.name = name;
  a.value = value;
}

void flatten_bodies(Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.body != nullptr; });
  if (any) Flattener(graph).run();
}

bool is_enter(const Node& node) { return node.domain == kInternalDomain && node.op_type == kEnter; }

std::int32_t body_region(const Node& node) {
  if (node.attributes.empty() || node.attributes.back().name != kRegion) return -1;
  return static_cast<std::int32_t>(std::get<std::int64_t>(node.attributes.back().value));
}

std::vector<std::int32_t> value_regions(const Graph& graph) {
  std::vector<std::int32_t> regions(graph.values.size(), -1);
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) regions[static_cast<std::size_t>(v)] = node.region;
    }
  }
  return regions;
}

bool region_contains(const Graph& graph, std::int32_t outer, std::int32_t inner) {
  while (inner >= 0 && inner != outer) {
    cancellation_point();
    inner = graph.regions[static_cast<std::size_t>(inner)].parent;
  }
  return inner == outer;
}

}  // namespace evn
