// See bodies.h.
#include "graph/bodies.h"

#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "core/name_map.h"

namespace evn {
namespace {

// Calls visit(graph) for each graph among the node's attributes.
template <typename Visit>
void for_each_graph(const Node& node, Visit visit) {
  for (const Attribute& a : node.attributes) {
    if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&a.value); graph != nullptr && *graph != nullptr) visit(**graph);
  }
}

// The names that a graph and those in it use without making them, in the order of their first use.
class FreeNames {
 public:
  explicit FreeNames(const Graph& graph) { visit(graph); }
  std::vector<std::string_view> names;

 private:
  NameViewSet seen_;
  std::vector<NameViewSet> made_;  // of the graphs around the one being visited

  void visit(const Graph& graph) {
    NameViewSet& made = made_.emplace_back();
    const auto name = [&](ValueId v) { return std::string_view(graph.values[static_cast<std::size_t>(v)].name); };
    for (const ValueId v : graph.inputs) made.insert(name(v));
    for (const Value& v : graph.values) {
      if (v.constant != nullptr) made.insert(v.name);
    }
    for (const Node& node : graph.nodes) {
      cancellation_point(kNodeWork);
      for (const ValueId v : node.outputs) {
        cancellation_point(kNameWork);
        if (v != kNoValue) made.insert(name(v));
      }
    }
    for (const Node& node : graph.nodes) {
      cancellation_point(kNodeWork);
      for (const ValueId v : node.inputs) {
        cancellation_point(kNameWork);
        if (v != kNoValue) use(name(v));
      }
      for_each_graph(node, [&](const Graph& inner) { visit(inner); });
    }
    for (const ValueId v : graph.outputs) use(name(v));
    made_.pop_back();
  }

  void use(std::string_view name) {
    for (const NameViewSet& made : made_) {
      if (made.count(name) != 0) return;
    }
    if (seen_.insert(name).second) names.push_back(name);
  }
};

}  // namespace

std::string bounded_path(std::string path) {
  constexpr std::size_t kMaxBytes = 256;
  path.resize(utf8_prefix(path, kMaxBytes));
  return path;
}

bool has_graph_attribute(const Node& node) {
  bool any = false;
  for_each_graph(node, [&](const Graph&) { any = true; });
  return any;
}

Graph copy_with_bodies(const Graph& graph) {
  Graph copy = graph;
  for (Node& node : copy.nodes) {
    cancellation_point(kNodeWork);
    for (Attribute& a : node.attributes) {
      auto* const body = std::get_if<std::shared_ptr<Graph>>(&a.value);
      if (body != nullptr && *body != nullptr) *body = std::make_shared<Graph>(copy_with_bodies(**body));
    }
  }
  return copy;
}

void take_body(Graph& graph, Node& node, const std::function<ValueId(std::string_view)>& find) {
  const Graph* source = nullptr;
  for_each_graph(node, [&](const Graph& g) {
    if (source != nullptr)
      throw make_error(EVN_ERROR_INVALID_MODEL, "%.64s has two graphs", node.op_type.c_str()).with_node(node.name.c_str());
    source = &g;
  });
  auto body = std::make_shared<Graph>(*source);
  const std::string prefix = bounded_path(node.name + "/body/");
  for (std::size_t i = 0; i < body->nodes.size(); ++i) {
    cancellation_point(kNodeWork);
    std::string& name = body->nodes[i].name;
    name = prefix + (name.empty() ? body->nodes[i].op_type + "_" + std::to_string(i) : name);
  }
  const FreeNames free(*source);
  NameMap own;  // the first of each name
  for (std::size_t v = 0; v < source->values.size(); ++v) {
    cancellation_point(kNodeWork);
    own.emplace(source->values[v].name, static_cast<ValueId>(v));
  }
  for (const std::string_view name : free.names) {
    cancellation_point(kNodeWork);
    const ValueId outer = find(name);
    if (outer == kNoValue) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "value '%.128s' of a body is made by nobody", std::string(name).c_str())
          .with_node(node.name.c_str());
    }
    const auto known = own.find(name);
    const auto inner = known != own.end() ? known->second : static_cast<ValueId>(body->values.size());
    if (known == own.end()) body->values.emplace_back().name = name;  // only a body in this body uses it
    body->values[static_cast<std::size_t>(inner)].dtype = graph.values[static_cast<std::size_t>(outer)].dtype;
    body->inputs.push_back(inner);
    node.inputs.push_back(outer);
    ++node.captures;
  }
  node.body = std::move(body);
}

}  // namespace evn
