// The names in a Gradient's attributes become inputs. Bound, a Gradient is of the library's own domain and has the inputs
//   values of xs and zs, tensors xs and zs, tensor y
// and one attribute, how many xs there are.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "core/name_map.h"
#include "graph/function_calls.h"
#include "graph/gradient.h"
#include "graph/gradient/bound.h"
#include "graph/opsets.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::string_view kTraining = "ai.onnx.preview.training";
constexpr std::string_view kName = "Gradient";

// The names that can be seen in a graph: its own, then those of the graphs around it.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_map<std::string, ValueId, KeyedHash> names{};

  bool sees(const std::string& name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (s->names.contains(name)) return true;
    }
    return false;
  }
};

class Binder {
 public:
  explicit Binder(const std::vector<OpsetImport>& opsets) : opsets_(opsets) {}

  // Most models have none, and their names need not be listed.
  static bool has_any(const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
      bool any = is_one(node);
      for_each_body(node.attributes, [&](const Graph& body) { any = any || has_any(body); });
      return any;
    });
  }

  void bind(Graph& graph, const Scope* outer) {
    if (outer == nullptr && !has_any(graph)) return;
    Scope scope{outer};
    bool listed = false;
    for (Node& node : graph.nodes) {
      cancellation_point(kNodeWork);
      bool has_bodies = false;
      for_each_body(node.attributes, [&](Graph&) { has_bodies = true; });
      if (!is_one(node) && !has_bodies) continue;
      if (!listed) {
        for (std::size_t v = 0; v < graph.values.size(); ++v) scope.names.emplace(graph.values[v].name, static_cast<ValueId>(v));
        listed = true;
      }
      for_each_body(node.attributes, [&](Graph& body) { bind(body, &scope); });
      if (is_one(node)) bind(graph, scope, node);
    }
  }

 private:
  const std::vector<OpsetImport>& opsets_;

  static bool is_one(const Node& node) { return node.domain == kTraining && node.op_type == kName && node.overload.empty(); }

  [[noreturn]] static void refuse(const Node& node, Error error) { throw error.with_node(node.name.c_str()); }

  template <typename T>
  static const T* read(const Node& node, const Attribute& a) {
    const T* value = std::get_if<T>(&a.value);
    if (value != nullptr && a.ref.empty()) return value;
    refuse(node,
           make_error(EVN_ERROR_INVALID_MODEL, "attribute '%.64s' of Gradient has no list of names, but type %s", a.name.c_str(),
                      a.ref.empty() ? attribute_type_name(attribute_type(a.value)) : "of a function's attribute"));
  }

  void bind(Graph& graph, Scope& scope, Node& node) const {
    imported_version(node, import_domains(opsets_));
    const std::vector<std::string>*xs = nullptr, *zs = nullptr;
    const std::string* y = nullptr;
    for (const Attribute& a : node.attributes) {
      if (a.name == "xs" && xs == nullptr) {
        xs = read<std::vector<std::string>>(node, a);
      } else if (a.name == "zs" && zs == nullptr) {
        zs = read<std::vector<std::string>>(node, a);
      } else if (a.name == "y" && y == nullptr) {
        y = read<std::string>(node, a);
      } else {
        refuse(node,
               make_error(EVN_ERROR_INVALID_MODEL, "Gradient has an attribute '%.64s' twice, or does not take it", a.name.c_str()));
      }
    }
    if (xs == nullptr || xs->empty())
      refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute 'xs' of Gradient is missing or empty"));
    if (y == nullptr) refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute 'y' of Gradient is missing"));
    check_counts(node, xs->size(), zs == nullptr ? 0 : zs->size());
    std::unordered_set<std::string, KeyedHash> seen;
    std::vector<ValueId> named;
    for (const std::string& name : *xs) named.push_back(find(graph, scope, node, "xs", name, &seen));
    for (std::size_t i = 0; zs != nullptr && i < zs->size(); ++i) named.push_back(find(graph, scope, node, "zs", (*zs)[i], &seen));
    named.push_back(find(graph, scope, node, "y", *y, nullptr));
    const auto count = static_cast<std::int64_t>(xs->size());
    node.inputs.insert(node.inputs.end(), named.begin(), named.end());
    node.domain = kInternalDomain;
    node.since_version = 1;
    node.attributes = {{kBoundCount, count, {}}};
  }

  static void check_counts(Node& node, std::size_t xs, std::size_t zs) {
    if (node.inputs.size() != xs + zs) {
      refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "Gradient has %zu inputs for %zu names in attributes 'xs' and 'zs'",
                              node.inputs.size(), xs + zs));
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "input %zu of Gradient is missing", i));
    }
    while (!node.outputs.empty() && node.outputs.back() == kNoValue) node.outputs.pop_back();
    if (node.outputs.empty() || node.outputs.size() > xs) {
      refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "Gradient has %zu outputs for %zu names in attribute 'xs'",
                              node.outputs.size(), xs));
    }
  }

  // In a body, a name of the graphs around it becomes a value of the body without a producer, like any that a body uses.
  static ValueId find(Graph& graph, Scope& scope, const Node& node, const char* attribute, const std::string& name,
                      std::unordered_set<std::string, KeyedHash>* seen) {
    if (name.empty() || !scope.sees(name)) {
      refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute '%s' of Gradient names '%.128s', which is no tensor here",
                              attribute, name.c_str()));
    }
    if (seen != nullptr && !seen->insert(name).second) {
      refuse(node, make_error(EVN_ERROR_INVALID_MODEL, "attributes 'xs' and 'zs' of Gradient name '%.128s' twice", name.c_str()));
    }
    const auto own = scope.names.find(name);
    if (own != scope.names.end()) return own->second;
    if (graph.values.size() >= INT32_MAX) fail(EVN_ERROR_LIMIT, "the graph has too many values");
    const auto id = static_cast<ValueId>(graph.values.size());
    graph.values.emplace_back().name = name;
    scope.names.emplace(name, id);
    return id;
  }
};

}  // namespace

bool is_gradient(std::string_view domain, std::string_view op_type) {
  return op_type == kName && (domain == kTraining || domain == kInternalDomain);
}

// Models cannot import the domain: none of their nodes has a version of it.
bool is_bound_gradient(const Node& node) {
  return node.since_version == 1 && node.op_type == kName && node.domain == kInternalDomain;
}

void bind_gradients(Model& model) {
  Binder(model.opsets).bind(model.graph, nullptr);
  for (Function& f : model.functions) {
    Binder binder(f.opsets);
    binder.bind(f.body, nullptr);
    for_each_body(f.defaults, [&](Graph& body) { binder.bind(body, nullptr); });
  }
}

}  // namespace evn
