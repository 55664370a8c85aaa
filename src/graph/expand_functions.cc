// See expand_functions.h. The sizes of all functions are added up first: that finds recursion, and refuses a model that would
// explode before anything is copied. Then calls are replaced from the outside in.
#include "graph/expand_functions.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "core/name_map.h"
#include "graph/attributes.h"
#include "graph/bodies.h"
#include "graph/function_calls.h"
#include "graph/gradient.h"
#include "kept_operators.h"

namespace evn {
namespace {

// Opset version of the Identity that stands for an output which is an input of its function.
constexpr int kIdentityVersion = 16;

std::string path_name(const std::string& path, const std::string& name) { return bounded_path(path + name); }

std::string name_in_function(const Node& node, std::size_t number) {
  return node.name.empty() ? node.op_type + "_" + std::to_string(number) : node.name;
}

// The values of a function by name, and those of the bodies inside it: each with its new name, or none for an input that the call
// does not give.
struct Scope {
  struct Meaning {
    std::string name;
    bool given = true;
  };
  const Scope* outer = nullptr;
  std::unordered_map<std::string_view, Meaning, KeyedHash> names{};

  const Meaning* find(std::string_view name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (const auto it = s->names.find(name); it != s->names.end()) return &it->second;
    }
    return nullptr;
  }
};

class Expander {
 public:
  Expander(Model& model, const Limits& limits, const OperatorRegistry* custom)
      : limits_(limits), functions_(model, custom), graph_(model.graph) {}

  void run() {
    if (functions_.measure(graph_) > limits_.nodes) refuse_nodes();
    take_names(graph_);
    expand(graph_, 1);
  }

 private:
  // One call while it is replaced.
  struct Call {
    const Node& node;
    const Callee& callee;
    std::string path;
  };

  const Limits& limits_;
  FunctionCalls functions_;
  Graph& graph_;
  NameSet taken_;             // of values, in all graphs: bodies find values by name
  std::uint64_t number_ = 0;  // makes a name that is taken another
  std::uint64_t nodes_ = 0;   // made so far
  std::uint64_t bytes_ = 0;

  [[noreturn]] void refuse_nodes() const {
    fail(EVN_ERROR_LIMIT, "with its functions in place the model has more than %llu nodes",
         static_cast<unsigned long long>(limits_.nodes));
  }
  void charge(std::uint64_t bytes) {
    bytes_ = saturating_add(bytes_, bytes);
    if (bytes_ <= limits_.model_bytes) return;
    fail(EVN_ERROR_LIMIT, "with its functions in place the model takes more than %llu bytes",
         static_cast<unsigned long long>(limits_.model_bytes));
  }
  void charge(const Node& node) {
    if (++nodes_ > limits_.nodes) refuse_nodes();
    charge(sizeof(Node) + (node.inputs.size() + node.outputs.size()) * sizeof(ValueId) + node.op_type.size() + node.domain.size());
  }
  void charge(const Attribute& attribute) {
    const auto size = [](const auto& v) -> std::uint64_t {
      using T = std::decay_t<decltype(v)>;
      if constexpr (std::is_same_v<T, std::string>) return v.size();
      if constexpr (std::is_same_v<T, std::vector<float>> || std::is_same_v<T, std::vector<std::int64_t>>)
        return v.size() * sizeof v[0];
      if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        std::uint64_t bytes = 0;
        for (const std::string& s : v) bytes += sizeof s + s.size();
        return bytes;
      }
      return 0;
    };
    charge(sizeof(Attribute) + attribute.name.size() + std::visit(size, attribute.value));
  }

  void take_names(const Graph& graph) {
    for (const Value& value : graph.values) taken_.insert(value.name);
    for (const Node& node : graph.nodes) {
      cancellation_point(kNodeWork);
      for_each_body(node.attributes, [&](const Graph& body) { take_names(body); });
    }
  }

  std::string free_name(const std::string& path, const std::string& name) {
    std::string s = path_name(path, name);
    const std::size_t size = s.size();
    while (!taken_.insert(s).second) {
      s.resize(size);
      s += "~" + std::to_string(++number_);
    }
    return s;
  }

  // Replaces the calls of a graph and of the bodies in it. `depth` counts bodies and calls around it.
  void expand(Graph& graph, int depth) {
    if (static_cast<std::uint64_t>(depth) > limits_.nesting) {
      fail(EVN_ERROR_LIMIT, "functions and bodies are nested more than %llu deep",
           static_cast<unsigned long long>(limits_.nesting));
    }
    std::vector<Node> nodes = std::exchange(graph.nodes, {});
    graph.nodes.reserve(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      nodes[i].name = name_in_function(nodes[i], i);
      add(graph, std::move(nodes[i]), depth);
    }
  }

  void add(Graph& graph, Node node, int depth) {
    if (Callee* callee = functions_.find(node)) return replace(graph, node, *callee, depth + 1);
    for_each_body(node.attributes, [&](Graph& body) { expand(body, depth + 1); });
    graph.nodes.push_back(std::move(node));
  }

  // ------------------------------------------------------------------------------------------------------ one call --

  void replace(Graph& graph, const Node& node, const Callee& callee, int depth) {
    if (static_cast<std::uint64_t>(depth) > limits_.nesting) {
      throw make_error(EVN_ERROR_LIMIT, "functions and bodies are nested more than %llu deep",
                       static_cast<unsigned long long>(limits_.nesting))
          .with_node(node.name.c_str());
    }
    const Graph& body = callee.function->body;
    const Call call{node, callee, node.name + "/"};
    const std::vector<ValueId> ids = place_values(graph, call);
    Scope scope;
    bool has_bodies = false;
    for (const Node& inner : body.nodes) {
      cancellation_point(kNodeWork);
      for_each_body(inner.attributes, [&](const Graph&) { has_bodies = true; });
    }
    for (std::size_t v = 0; v < ids.size() && has_bodies; ++v) {
      const bool given = ids[v] != kNoValue;
      scope.names.emplace(body.values[v].name,
                          Scope::Meaning{given ? graph.values[static_cast<std::size_t>(ids[v])].name : "", given});
    }
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      Node inner = copy_node(body.nodes[i], call, scope, [&](ValueId v) { return ids[static_cast<std::size_t>(v)]; });
      inner.name = path_name(call.path, name_in_function(inner, i));
      add(graph, std::move(inner), depth);
    }
  }

  [[noreturn]] static void refuse_count(const Call& call, const char* what, std::size_t given, std::size_t declared) {
    throw make_error(EVN_ERROR_INVALID_MODEL, "function %.128s has %zu %s, the call gives %zu", call.callee.function->name.c_str(),
                     declared, what, given)
        .with_node(call.node.name.c_str());
  }

  // Per value of the function, the graph's.
  std::vector<ValueId> place_values(Graph& graph, const Call& call) {
    constexpr ValueId kOpen = -2;
    const Graph& body = call.callee.function->body;
    const Node& node = call.node;
    if (node.inputs.size() > body.inputs.size()) refuse_count(call, "inputs", node.inputs.size(), body.inputs.size());
    if (node.outputs.size() > body.outputs.size()) refuse_count(call, "outputs", node.outputs.size(), body.outputs.size());
    std::vector<ValueId> ids(body.values.size(), kOpen);
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      ids[static_cast<std::size_t>(body.inputs[i])] = i < node.inputs.size() ? node.inputs[i] : kNoValue;
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      ValueId& id = ids[static_cast<std::size_t>(body.outputs[i])];
      if (id == kOpen) {
        id = node.outputs[i];
      } else {
        hand_on(graph, call, id, i);
      }
    }
    for (std::size_t v = 0; v < ids.size(); ++v) {
      if (ids[v] == kOpen) ids[v] = add_value(graph, free_name(call.path, body.values[v].name));
    }
    return ids;
  }

  // An output of the function that is one of its inputs.
  void hand_on(Graph& graph, const Call& call, ValueId from, std::size_t output) {
    if (from == kNoValue) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "output %zu of function %.128s is an input that the call does not give", output,
                       call.callee.function->name.c_str())
          .with_node(call.node.name.c_str());
    }
    Node identity;
    identity.name = path_name(call.path, "output_" + std::to_string(output));
    identity.op_type = "Identity";
    identity.since_version = kIdentityVersion;
    identity.inputs = {from};
    identity.outputs = {call.node.outputs[output]};
    graph.nodes.push_back(std::move(identity));
  }

  ValueId add_value(Graph& graph, std::string name) {
    charge(sizeof(Value) + name.size());
    if (graph.values.size() >= static_cast<std::size_t>(std::numeric_limits<ValueId>::max()))
      fail(EVN_ERROR_LIMIT, "the graph has too many values");
    graph.values.emplace_back().name = std::move(name);
    return static_cast<ValueId>(graph.values.size() - 1);
  }

  // A node of the function or of a body inside it, with what the call gives filled in.
  template <typename Rename>
  Node copy_node(const Node& from, const Call& call, const Scope& scope, Rename rename) {
    charge(from);
    Node node;
    node.name = from.name;
    node.op_type = from.op_type;
    node.domain = from.domain;
    node.overload = from.overload;
    node.since_version = version_in_function(from, call);
    for (const ValueId v : from.inputs) node.inputs.push_back(v == kNoValue ? kNoValue : rename(v));
    for (const ValueId v : from.outputs) node.outputs.push_back(v == kNoValue ? kNoValue : rename(v));
    for (const Attribute& attribute : from.attributes) {
      if (!attribute.ref.empty()) {
        add_referred(node, attribute, call);
        continue;
      }
      charge(attribute);
      const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
      node.attributes.push_back(body == nullptr ? attribute : Attribute{attribute.name, copy_body(**body, call, scope), {}});
    }
    return node;
  }

  static int version_in_function(const Node& node, const Call& call) {
    if (node.since_version != 0) return node.since_version;  // a bound Gradient
    const auto domain = call.callee.domains.find(node.domain);
    if (domain != call.callee.domains.end()) return domain->second;
    throw make_error(EVN_ERROR_INVALID_MODEL, "function %.128s uses operator %.128s of domain %.64s, which it does not import",
                     call.callee.function->name.c_str(), node.op_type.c_str(), shown_domain(node))
        .with_node(call.node.name.c_str());
  }

  // What the call says of an attribute, else what the function says, else nothing.
  void add_referred(Node& node, const Attribute& attribute, const Call& call) {
    const Attribute* given = find_attribute(call.node.attributes, attribute.ref);
    const Attribute* value = given != nullptr ? given : find_attribute(call.callee.function->defaults, attribute.ref);
    if (value == nullptr) return;
    charge(*value);
    node.attributes.push_back({attribute.name, value->value, {}});
    auto* body = std::get_if<std::shared_ptr<Graph>>(&node.attributes.back().value);
    if (body == nullptr) return;
    // A body that the call gives uses the values around the call by their names, which are no others here.
    *body = given != nullptr ? clone(**body) : copy_body(**body, call, Scope{});
  }

  // ------------------------------------------------------------------------------------------------ bodies inside --

  std::shared_ptr<Graph> clone(const Graph& from) {
    charge(from.values.size() * sizeof(Value));
    for (const Node& node : from.nodes) {
      cancellation_point(kNodeWork);
      charge(node);
      for (const Attribute& attribute : node.attributes) charge(attribute);
    }
    auto graph = std::make_shared<Graph>(from);
    for (Node& node : graph->nodes) {
      cancellation_point(kNodeWork);
      for (Attribute& attribute : node.attributes) {
        if (auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) *body = clone(**body);
      }
    }
    return graph;
  }

  static std::vector<bool> own_values(const Graph& body) {
    std::vector<bool> own(body.values.size(), false);
    for (std::size_t v = 0; v < own.size(); ++v) own[v] = body.values[v].constant != nullptr;
    for (const ValueId v : body.inputs) own[static_cast<std::size_t>(v)] = true;
    for (const Node& node : body.nodes) {
      cancellation_point(kNodeWork);
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) own[static_cast<std::size_t>(v)] = true;
      }
    }
    return own;
  }

  // A body of a node of the function. Its own values get new names too, so that none hides a value which the call hands in.
  std::shared_ptr<Graph> copy_body(const Graph& from, const Call& call, const Scope& outer) {
    const std::vector<bool> own = own_values(from);
    auto graph = std::make_shared<Graph>();
    graph->name = from.name;
    Scope scope{&outer, {}};
    std::vector<ValueId> ids(from.values.size(), kNoValue);
    for (std::size_t v = 0; v < ids.size(); ++v) {
      const Value& value = from.values[v];
      const Scope::Meaning meaning = own[v] ? Scope::Meaning{free_name(call.path, value.name)} : meaning_of(value, call, outer);
      if (own[v]) scope.names.emplace(value.name, meaning);
      if (!meaning.given) continue;
      charge(sizeof(Value) + meaning.name.size());
      ids[v] = static_cast<ValueId>(graph->values.size());
      graph->values.push_back(value);
      graph->values.back().name = meaning.name;
    }
    const auto rename = [&](ValueId v) { return ids[static_cast<std::size_t>(v)]; };
    for (const ValueId v : from.inputs) graph->inputs.push_back(rename(v));
    for (const ValueId v : from.outputs) {
      if (rename(v) == kNoValue)
        refuse_value(from.values[static_cast<std::size_t>(v)], call, "is an input that the call does not give");
      graph->outputs.push_back(rename(v));
    }
    for (const Node& node : from.nodes) {
      cancellation_point(kNodeWork);
      graph->nodes.push_back(copy_node(node, call, scope, rename));
    }
    return graph;
  }

  static const Scope::Meaning& meaning_of(const Value& value, const Call& call, const Scope& outer) {
    const Scope::Meaning* meaning = outer.find(value.name);
    if (meaning == nullptr) refuse_value(value, call, "is made by nobody");
    return *meaning;
  }

  [[noreturn]] static void refuse_value(const Value& value, const Call& call, const char* what) {
    throw make_error(EVN_ERROR_INVALID_MODEL, "value '%.128s' of a body in function %.128s %s", value.name.c_str(),
                     call.callee.function->name.c_str(), what)
        .with_node(call.node.name.c_str());
  }
};

}  // namespace

void expand_functions(Model& model, const Limits& limits, const OperatorRegistry* custom) {
  if (kKeeps_gradient) bind_gradients(model);
  if (model.functions.empty()) return;
  Expander(model, limits, custom).run();
  model.functions.clear();
}

}  // namespace evn
