// See inline_if.h.
#include "graph/inline_if.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "core/name_map.h"
#include "graph/bodies.h"
#include "graph/gradient.h"
#include "graph/opsets.h"
#include "ops/flex_attention.h"
#include "ops/merge.h"

namespace evn {
namespace {

constexpr std::string_view kPreview = "ai.onnx.preview";

bool is_if(const Node& node) { return node.domain.empty() && node.op_type == "If"; }
bool is_flex(const Node& node) { return node.domain == kPreview && node.op_type == "FlexAttention"; }

// The values that a body may use by name: its own, then those of the graphs around it.
struct Scope {
  const Scope* outer = nullptr;
  NameMap names;

  ValueId find(std::string_view name) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      if (const auto it = s->names.find(name); it != s->names.end()) return it->second;
    }
    return kNoValue;
  }
};

class Inliner {
 public:
  explicit Inliner(Graph& graph) : graph_(graph) {}

  void run() {
    Scope scope;
    // The graph's values may move while bodies add theirs: their names are kept here.
    names_.reserve(graph_.values.size());
    for (const Value& v : graph_.values) names_.push_back(v.name);
    for (std::size_t v = 0; v < names_.size(); ++v) {
      cancellation_point(kNameWork);
      scope.names.emplace(names_[v], static_cast<ValueId>(v));
    }
    for (std::size_t v = 0; v < names_.size(); ++v) {
      if (graph_.values[v].constant != nullptr) set_made(static_cast<ValueId>(v));
    }
    for (const ValueId v : graph_.inputs) set_made(v);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    graph_.nodes.reserve(nodes.size());
    for (Node& node : nodes) {
      cancellation_point(kNodeWork);
      add(std::move(node), scope, -1);
    }
  }

 private:
  Graph& graph_;
  std::vector<std::string> names_;
  std::vector<bool> made_;  // by value: by what stands before the node that is looked at

  void set_made(ValueId v) {
    const auto index = static_cast<std::size_t>(v);
    if (made_.size() <= index) made_.resize(std::max(graph_.values.size(), index + 1));
    made_[index] = true;
  }
  bool is_made(ValueId v) const {
    return v != kNoValue && static_cast<std::size_t>(v) < made_.size() && made_[static_cast<std::size_t>(v)];
  }

  void add(Node node, const Scope& scope, std::int32_t region) {
    node.region = region;
    const std::vector<ValueId> outputs = node.outputs;
    add_node(std::move(node), scope);
    for (const ValueId v : outputs) {
      if (v != kNoValue) set_made(v);
    }
  }

  void add_node(Node node, const Scope& scope) {
    if (is_if(node)) return add_if(node, scope);
    if (is_flex(node)) return add_flex(node, scope);
    if (has_graph_attribute(node)) take_body(graph_, node, [&](std::string_view name) { return scope.find(name); });
    graph_.nodes.push_back(std::move(node));
  }

  static const std::shared_ptr<Graph>& body_of(const Node& node, const char* name) {
    const std::shared_ptr<Graph>* body = nullptr;
    for (const Attribute& a : node.attributes) {
      if (a.name != name) continue;
      if (body != nullptr)
        throw make_error(EVN_ERROR_INVALID_MODEL, "attribute '%s' is given twice", name).with_node(node.name.c_str());
      body = std::get_if<std::shared_ptr<Graph>>(&a.value);
    }
    if (body == nullptr || *body == nullptr) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "If has no graph attribute '%s'", name).with_node(node.name.c_str());
    }
    return *body;
  }

  void add_if(const Node& node, const Scope& scope) {
    const char* const name = node.name.c_str();
    if (node.inputs.size() != 1 || node.inputs[0] == kNoValue) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "If takes 1 input, it has %zu", node.inputs.size()).with_node(name);
    }
    if (node.attributes.size() != 2)
      throw make_error(EVN_ERROR_INVALID_MODEL, "If has attributes that it does not take").with_node(name);
    const auto number = static_cast<std::int64_t>(graph_.regions.size() / 2);
    graph_.regions.push_back({node.region});
    graph_.regions.push_back({node.region});
    const std::vector<ValueId> made[2] = {
        add_body(node, *body_of(node, "then_branch"), "/then/", scope, static_cast<std::int32_t>(2 * number)),
        add_body(node, *body_of(node, "else_branch"), "/else/", scope, static_cast<std::int32_t>(2 * number + 1))};
    for (const std::vector<ValueId>& outputs : made) {
      if (outputs.size() == node.outputs.size()) continue;
      throw make_error(EVN_ERROR_INVALID_MODEL, "If has %zu outputs, a branch has %zu", node.outputs.size(), outputs.size())
          .with_node(name);
    }
    const OpDef* const op = stand_in(node, kInternalDomain, "Merge", 1);
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      Node merge;
      merge.name = k == 0 ? node.name : bounded_path(node.name) + ":" + std::to_string(k);
      merge.op_type = op->name;
      merge.domain = op->domain;
      merge.since_version = 1;
      merge.op = op;
      merge.inputs = {node.inputs[0], made[0][k], made[1][k]};
      merge.outputs = {node.outputs[k]};
      merge.resolved = {AttributeValue(number)};
      merge.region = node.region;
      graph_.nodes.push_back(std::move(merge));
    }
  }

  // Scores, score_mod, Softmax, prob_mod and the product with the values, in the node's place.
  void add_flex(const Node& node, const Scope& scope) {
    const char* const name = node.name.c_str();
    if (node.inputs.size() != 3 || node.outputs.size() != 1 || std::count(node.inputs.begin(), node.inputs.end(), kNoValue) != 0) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "FlexAttention takes 3 inputs and gives 1 output").with_node(name);
    }
    Graph* modifiers[2] = {nullptr, nullptr};  // of scores, of probabilities
    AttributeValue scale = 0.0f;
    AttributeValue precision = std::int64_t{0};
    for (const Attribute& a : node.attributes) {
      const auto* graph = std::get_if<std::shared_ptr<Graph>>(&a.value);
      if ((a.name == "score_mod" || a.name == "prob_mod") && graph != nullptr && *graph != nullptr) {
        modifiers[a.name == "prob_mod" ? 1 : 0] = graph->get();
      } else if (a.name == "scale" && attribute_type(a.value) == AttributeType::kFloat) {
        scale = a.value;
      } else if (a.name == "softmax_precision" && attribute_type(a.value) == AttributeType::kInt) {
        precision = a.value;
      } else {
        throw make_error(EVN_ERROR_INVALID_MODEL, "FlexAttention has an attribute '%.64s' that it does not take", a.name.c_str())
            .with_node(name);
      }
    }
    ValueId at = add_made(node, "scores", stand_in(node, kInternalDomain, kFlexScores, 1), {node.inputs[0], node.inputs[1]},
                          {scale, precision});
    at = add_modifier(node, modifiers[0], "/score_mod/", scope, at);
    at = add_made(node, "softmax", stand_in(node, "", "Softmax", 13), {at}, {AttributeValue(std::int64_t{-1})});
    at = add_modifier(node, modifiers[1], "/prob_mod/", scope, at);
    add_made(node, "output", stand_in(node, kInternalDomain, kFlexOutput, 1), {at, node.inputs[2]}, {}, node.outputs[0]);
  }

  ValueId add_modifier(const Node& node, Graph* body, const char* prefix, const Scope& scope, ValueId input) {
    if (body == nullptr) return input;
    if (body->inputs.size() != 1 || body->outputs.size() != 1) {
      throw make_error(EVN_ERROR_INVALID_MODEL, "a graph of FlexAttention has one input and one output")
          .with_node(node.name.c_str());
    }
    return add_body(node, *body, prefix, scope, node.region, {&input, 1})[0];
  }

  // A node with its operator and attributes, below the name of `from`. Returns its output, a new value unless one is given.
  ValueId add_made(const Node& from, const char* name, const OpDef* op, std::vector<ValueId> inputs,
                   std::vector<AttributeValue> resolved, ValueId output = kNoValue) {
    Node node;
    node.name = from.name + "/" + name;
    node.op_type = op->name;
    node.domain = op->domain;
    node.since_version = op->since;
    node.op = op;
    node.inputs = std::move(inputs);
    if (output == kNoValue) {
      Value value;
      value.name = name;
      output = add_value(value, from.name + "/");
    }
    node.outputs = {output};
    node.resolved = std::move(resolved);
    node.region = from.region;
    graph_.nodes.push_back(std::move(node));
    return output;
  }

  // Returns the graph's values of the body's outputs. `bound`: what the body's inputs are.
  std::vector<ValueId> add_body(const Node& node, Graph& body, const char* branch, const Scope& outer, std::int32_t region,
                                std::span<const ValueId> bound = {}) {
    if (body.inputs.size() != bound.size())
      throw make_error(EVN_ERROR_INVALID_MODEL, "a branch of If has inputs").with_node(node.name.c_str());
    const std::string prefix = bounded_path(node.name + branch);
    std::vector<bool> own(body.values.size(), false);
    for (std::size_t v = 0; v < body.values.size(); ++v) own[v] = body.values[v].constant != nullptr;
    for (const Node& n : body.nodes) {
      cancellation_point(kNodeWork);
      for (const ValueId v : n.outputs) {
        if (v == kNoValue) continue;
        own[static_cast<std::size_t>(v)] = true;
        // ONNX wants one meaning for a name wherever it can be seen.
        const std::string& value = body.values[static_cast<std::size_t>(v)].name;
        if (!is_made(outer.find(value))) continue;
        throw make_error(EVN_ERROR_INVALID_MODEL, "value '%.128s' of a branch has the name of one outside of it", value.c_str())
            .with_node(node.name.c_str());
      }
    }
    Scope scope{&outer, {}};
    std::vector<ValueId> ids(body.values.size(), kNoValue);
    for (std::size_t i = 0; i < bound.size(); ++i) {
      ids[static_cast<std::size_t>(body.inputs[i])] = bound[i];
      scope.names.emplace(body.values[static_cast<std::size_t>(body.inputs[i])].name, bound[i]);
    }
    for (std::size_t v = 0; v < body.values.size(); ++v) {
      const Value& value = body.values[v];
      if (ids[v] != kNoValue) continue;
      ids[v] = own[v] ? add_value(value, prefix) : outer.find(value.name);
      if (own[v]) scope.names.emplace(value.name, ids[v]);
      if (ids[v] == kNoValue) {
        throw make_error(EVN_ERROR_INVALID_MODEL, "value '%.128s' of a branch is made by nobody", value.name.c_str())
            .with_node(node.name.c_str());
      }
    }
    const auto rename = [&](std::vector<ValueId>& values) {
      for (ValueId& v : values) {
        if (v != kNoValue) v = ids[static_cast<std::size_t>(v)];
      }
    };
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      cancellation_point(kNodeWork);
      Node inner = body.nodes[i];
      inner.name = prefix + (inner.name.empty() ? inner.op_type + "_" + std::to_string(i) : inner.name);
      rename(inner.inputs);
      rename(inner.outputs);
      add(std::move(inner), scope, region);
    }
    std::vector<ValueId> outputs = body.outputs;
    rename(outputs);
    return outputs;
  }

  ValueId add_value(const Value& value, const std::string& prefix) {
    if (graph_.values.size() >= INT32_MAX) fail(EVN_ERROR_LIMIT, "the graph has too many values");
    graph_.values.push_back(value);
    graph_.values.back().name = prefix + value.name;
    return static_cast<ValueId>(graph_.values.size() - 1);
  }
};

}  // namespace

bool is_taken_apart(std::string_view domain, std::string_view op_type) {
  return (domain.empty() && op_type == "If") || (domain == kPreview && op_type == "FlexAttention") || is_gradient(domain, op_type);
}

void take_bodies(Graph& graph) {
  bool any = false;
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    any |= is_if(node) || is_flex(node) || has_graph_attribute(node);
  }
  if (any) Inliner(graph).run();
}

std::vector<ValueId> region_conditions(const Graph& graph) {
  std::vector<ValueId> conditions(graph.regions.size(), kNoValue);
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    if (!is_merge(node)) continue;
    const auto first = static_cast<std::size_t>(2 * merge_number(node));
    conditions[first] = conditions[first + 1] = node.inputs[0];
  }
  return conditions;
}

}  // namespace evn
