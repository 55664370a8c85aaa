// What makes a graph fit for the rest of the library, once, when a model is loaded. In this order: names, branches, operators with
// their attributes, one producer per value, constants, topological order. Shapes and most dtypes come later, in infer.
#include "graph/validate.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <queue>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "graph/expand_functions.h"
#include "graph/gradient.h"
#include "graph/inline_if.h"
#include "graph/opsets.h"
#include "graph/passes/widen_half.h"
#include "kept_operators.h"
#include "ops/merge.h"

namespace evn {
namespace {

// An attribute of opset 1 to 6, still written by some exporters; it never meant anything for inference.
constexpr std::string_view kIgnoredAttribute = "consumed_inputs";

[[noreturn]] void fail_node(const Node& node, Error error) { throw error.with_node(node.name.c_str()); }

// ----------------------------------------------------------------------------------------------------------- names --

// Gives each node a unique name: its own, the first time that it appears; else the operator's with the node's number.
void name_nodes(Graph& graph) {
  std::vector<std::size_t> order(graph.nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const int by_name = graph.nodes[a].name.compare(graph.nodes[b].name);
    return by_name != 0 ? by_name < 0 : a < b;
  });
  std::vector<std::string> taken;
  std::vector<std::size_t> nameless;
  for (const std::size_t i : order) {
    const std::string& name = graph.nodes[i].name;
    if (name.empty() || (!taken.empty() && taken.back() == name)) {
      nameless.push_back(i);
    } else {
      taken.push_back(name);  // sorted
    }
  }
  for (const std::size_t i : nameless) {
    std::string name = graph.nodes[i].op_type + "_" + std::to_string(i);
    // Two made-up names differ in their numbers or in how many underscores end them.
    while (std::binary_search(taken.begin(), taken.end(), name)) name += '_';
    graph.nodes[i].name = std::move(name);
  }
}

// ------------------------------------------------------------------------------------------------------- operators --

// Finds operators; a model has many nodes of few operators.
class OpFinder {
 public:
  OpFinder(const Domains& domains, const OperatorRegistry* custom) : domains_(domains), custom_(custom) {}

  void set_op(Node& node) {
    node.since_version = imported_version(node, domains_);
    const auto key = std::make_tuple(std::string_view(node.domain), std::string_view(node.op_type), node.since_version);
    auto known = found_.find(key);
    if (known == found_.end()) {
      const OpDef* op = find_op(custom_, node.domain, node.op_type, node.since_version);
      if (op == nullptr) refuse(node);
      known =
          found_.emplace(std::make_tuple(std::string_view(op->domain), std::string_view(op->name), node.since_version), op).first;
    }
    node.op = known->second;
    if (callers_operator_.empty() && node.op->custom != nullptr && node.op->custom->on_callers_thread) {
      callers_node_ = node.name;
      callers_operator_ = node.domain + "::" + node.op_type;
    }
  }

  void tell_callers_node(Model& model) {
    model.callers_node = std::move(callers_node_);
    model.callers_operator = std::move(callers_operator_);
  }

 private:
  [[noreturn]] void refuse(const Node& node) const {
    if (op_known(custom_, node.domain, node.op_type)) {
      fail_node(node, make_error(EVN_ERROR_UNSUPPORTED, "operator %.128s (domain %.64s) is not supported in opset %d",
                                 node.op_type.c_str(), shown_domain(node), node.since_version));
    }
    if (op_left_out(node.op_type)) {
      fail_node(node, make_error(EVN_ERROR_UNSUPPORTED,
                                 "operator %.128s (domain %.64s) is not in this build of the library (EVN_OPERATORS)",
                                 node.op_type.c_str(), shown_domain(node)));
    }
    fail_node(node, make_error(EVN_ERROR_UNSUPPORTED, "operator %.128s (domain %.64s) is not supported", node.op_type.c_str(),
                               shown_domain(node)));
  }

  const Domains& domains_;
  const OperatorRegistry* custom_;
  std::string callers_node_, callers_operator_;
  std::map<std::tuple<std::string_view, std::string_view, int>, const OpDef*> found_;
};

void check_count(const Node& node, const char* what, std::size_t count, int least, int most) {
  if (count >= static_cast<std::size_t>(least) && count <= static_cast<std::size_t>(most)) return;
  fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "%s has %zu %s, it takes %d to %s%d", node.op->name, count, what, least,
                             most >= kVariadic ? "at most " : "", most));
}

// Trailing inputs without a name are the same as none, and so are trailing outputs, unless the operator makes any number of
// outputs: how many a Split has decides how large each part is. Outputs of such an operator may all lack a name.
void check_arity(Node& node) {
  const OpDef& op = *node.op;
  if ((op.body != nullptr) != (node.body != nullptr)) {
    fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, node.body != nullptr ? "%s takes no graph" : "%s has no body", op.name));
  }
  while (!node.inputs.empty() && node.inputs.back() == kNoValue && node.inputs.size() > static_cast<std::size_t>(op.min_inputs)) {
    node.inputs.pop_back();
  }
  const bool any_outputs = op.max_outputs >= kVariadic;
  while (!any_outputs && !node.outputs.empty() && node.outputs.back() == kNoValue) node.outputs.pop_back();
  const std::size_t inputs = node.inputs.size() - static_cast<std::size_t>(node.captures);
  check_count(node, "inputs", inputs, op.min_inputs, op.max_inputs);
  check_count(node, "outputs", node.outputs.size(), op.min_outputs, op.max_outputs);
  const bool all = op.max_inputs >= kVariadic && op.custom == nullptr;
  const std::size_t required = all ? inputs : static_cast<std::size_t>(op.min_inputs);
  for (std::size_t i = 0; i < required && op.body == nullptr; ++i) {  // operators with a body look for themselves
    if (node.inputs[i] == kNoValue) fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "input %zu of %s is missing", i, op.name));
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(op.min_outputs) && !any_outputs; ++i) {
    if (node.outputs[i] == kNoValue)
      fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "output %zu of %s has no name", i, op.name));
  }
}

bool has_no_output(const Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(), [](ValueId v) { return v == kNoValue; });
}

AttributeValue default_value(const AttributeSpec& spec) {
  switch (spec.type) {
    case AttributeType::kInt: return spec.default_int;
    case AttributeType::kFloat: return spec.default_float;
    case AttributeType::kString:
      if (spec.default_string != nullptr) return std::string(spec.default_string);
      return {};
    default: return {};
  }
}

void resolve_attribute(Node& node, const Attribute& attribute, std::vector<bool>& given) {
  const std::span<const AttributeSpec> specs = node.op->attributes;
  const auto spec = std::find_if(specs.begin(), specs.end(), [&](const AttributeSpec& s) { return attribute.name == s.name; });
  const char* name = attribute.name.c_str();
  if (spec == specs.end()) {
    if (attribute.name == kIgnoredAttribute) return;
    fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "%s has no attribute '%.64s' in opset %d", node.op->name, name,
                               node.since_version));
  }
  const auto index = static_cast<std::size_t>(spec - specs.begin());
  if (given[index]) fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute '%.64s' is given twice", name));
  given[index] = true;
  if (attribute_type(attribute.value) != spec->type) {
    fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute '%.64s' is of type %s, not %s", name,
                               attribute_type_name(attribute_type(attribute.value)), attribute_type_name(spec->type)));
  }
  node.resolved[index] = attribute.value;
}

// Those of a host's operator are read by their names.
void check_custom_attributes(const Node& node) {
  std::vector<std::string_view> names;
  for (const Attribute& a : node.attributes) names.push_back(a.name);
  std::ranges::sort(names);
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute '%.64s' is given twice", std::string(*twin).c_str()));
  }
}

void resolve_attributes(Node& node) {
  if (node.op->custom != nullptr) return check_custom_attributes(node);
  const std::span<const AttributeSpec> specs = node.op->attributes;
  node.resolved.assign(specs.size(), AttributeValue());
  std::vector<bool> given(specs.size());
  for (const Attribute& attribute : node.attributes) resolve_attribute(node, attribute, given);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (given[i]) continue;
    if (specs[i].required) {
      fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "attribute '%s' of %s is missing", specs[i].name, node.op->name));
    }
    node.resolved[i] = default_value(specs[i]);
  }
}

// -------------------------------------------------------------------------------------------------------- producers --

enum : std::int32_t { kNobody = -1, kGraphInput = -2, kConstant = -3 };  // else the number of a node

std::vector<std::int32_t> find_producers(const Graph& graph) {
  std::vector<std::int32_t> producers(graph.values.size(), kNobody);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].constant != nullptr) producers[v] = kConstant;
  }
  for (const ValueId v : graph.inputs) {
    std::int32_t& producer = producers[static_cast<std::size_t>(v)];
    if (producer != kNobody) {
      fail(EVN_ERROR_INVALID_MODEL, "input '%.128s' is there twice or is a constant",
           graph.values[static_cast<std::size_t>(v)].name.c_str());
    }
    producer = kGraphInput;
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    cancellation_point(kNodeWork);
    for (const ValueId v : graph.nodes[n].outputs) {
      cancellation_point(kNodeWork);
      if (v == kNoValue) continue;
      std::int32_t& producer = producers[static_cast<std::size_t>(v)];
      if (producer != kNobody) {
        fail_node(graph.nodes[n], make_error(EVN_ERROR_INVALID_MODEL, "output '%.128s' is also %s",
                                             graph.values[static_cast<std::size_t>(v)].name.c_str(),
                                             producer == kGraphInput ? "an input of the graph"
                                             : producer == kConstant ? "an initializer"
                                                                     : "an output of another node"));
      }
      producer = static_cast<std::int32_t>(n);
    }
  }
  return producers;
}

void check_uses(const Graph& graph, const std::vector<std::int32_t>& producers) {
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    for (const ValueId v : node.inputs) {
      if (v == kNoValue || producers[static_cast<std::size_t>(v)] != kNobody) continue;
      fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "input '%.128s' is made by nobody",
                                 graph.values[static_cast<std::size_t>(v)].name.c_str()));
    }
  }
  if (graph.outputs.empty()) fail(EVN_ERROR_INVALID_MODEL, "the graph has no outputs");
  for (const ValueId v : graph.outputs) {
    if (producers[static_cast<std::size_t>(v)] == kNobody) {
      fail(EVN_ERROR_INVALID_MODEL, "output '%.128s' of the graph is made by nobody",
           graph.values[static_cast<std::size_t>(v)].name.c_str());
    }
  }
}

// -------------------------------------------------------------------------------------------------------- constants --

template <typename T>
WeightPtr weight_of(DType dtype, const Shape& shape, std::span<const T> values) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight = make_weight({dtype, shape}, nullptr, &bytes);
  if (!values.empty()) std::memcpy(bytes, values.data(), values.size_bytes());
  return weight;
}

WeightPtr weight_of_strings(const Shape& shape, std::span<const std::string> values) {
  void* bytes = nullptr;
  std::shared_ptr<Weight> weight = make_weight({DType::kString, shape}, nullptr, &bytes);
  auto texts = std::make_shared<TextPool>(nullptr);
  for (std::size_t i = 0; i < values.size(); ++i) static_cast<TextElement*>(bytes)[i] = texts->add(values[i]);
  keep_texts(*weight, std::move(texts));
  return weight;
}

Shape list_shape(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

// The value of a Constant node, in one of its seven forms.
WeightPtr constant_value(const Node& node) {
  const Attribute* given = nullptr;
  for (const Attribute& attribute : node.attributes) {
    if (attribute.name == kIgnoredAttribute) continue;
    if (given != nullptr) fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "a Constant has more than one value"));
    given = &attribute;
  }
  if (given == nullptr) fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "a Constant has no value"));
  const AttributeValue& value = given->value;
  if (const auto* tensor = std::get_if<WeightPtr>(&value)) return *tensor;
  if (const auto* f = std::get_if<float>(&value)) return weight_of<float>(DType::kFloat32, {}, {f, 1});
  if (const auto* i = std::get_if<std::int64_t>(&value)) return weight_of<std::int64_t>(DType::kInt64, {}, {i, 1});
  if (const auto* fs = std::get_if<std::vector<float>>(&value))
    return weight_of<float>(DType::kFloat32, list_shape(fs->size()), *fs);
  if (const auto* is = std::get_if<std::vector<std::int64_t>>(&value)) {
    return weight_of<std::int64_t>(DType::kInt64, list_shape(is->size()), *is);
  }
  if (const auto* s = std::get_if<std::string>(&value)) return weight_of_strings({}, {s, 1});
  if (const auto* ss = std::get_if<std::vector<std::string>>(&value)) return weight_of_strings(list_shape(ss->size()), *ss);
  fail_node(node, make_error(EVN_ERROR_UNSUPPORTED, "a Constant of type %s is not supported",
                             attribute_type_name(attribute_type(value))));
}

bool is_constant_node(const Node& node) { return node.domain.empty() && node.op_type == "Constant"; }

// A Constant's own type counts; only of an output of the graph the declared one is a promise.
void check_constant_type(const Graph& graph, const Node& node, const TensorDesc& desc, const std::vector<bool>& is_output,
                         TypeConflicts* conflicts) {
  const Value& value = graph.values[static_cast<std::size_t>(node.outputs[0])];
  if (value.dtype == DType::kUndefined || (value.dtype == desc.dtype && !value.wraps)) return;
  if (is_output[static_cast<std::size_t>(node.outputs[0])]) {
    fail_node(node, make_error(EVN_ERROR_INVALID_MODEL, "'%.128s' is declared as %s and has %s values", value.name.c_str(),
                               dtype_name(value.dtype), dtype_name(desc.dtype)));
  }
  if (conflicts == nullptr) return;
  conflicts->push_back(
      {node.name, value.name, TensorDesc{value.dtype, {}, value.wraps}.type_string(), TensorDesc{desc.dtype, {}}.type_string()});
}

void take_constants(Graph& graph, TypeConflicts* conflicts, std::set<std::uint64_t>* literals) {
  std::vector<bool> is_output(graph.values.size(), false);
  for (const ValueId v : graph.outputs) is_output[static_cast<std::size_t>(v)] = true;
  for (Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    if (!is_constant_node(node)) continue;
    Value& value = graph.values[static_cast<std::size_t>(node.outputs[0])];
    value.constant = constant_value(node);
    if (literals != nullptr) literals->insert(value.constant->id);
    const TensorDesc& desc = value.constant->desc;
    check_constant_type(graph, node, desc, is_output, conflicts);
    value.dtype = desc.dtype;
    value.wraps = {};
    value.has_shape = true;
    value.shape = desc.shape;
    value.symbols.clear();
  }
  std::erase_if(graph.nodes, is_constant_node);
}

// What is known before inference: the types of inputs and constants, not those that the model declares for what its nodes make.
// 16-bit floating types may be widened later.
void check_dtypes(const Graph& graph) {
  const std::vector<std::int32_t> producers = find_producers(graph);
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    if (node.inputs.empty() || node.inputs[0] == kNoValue || producers[static_cast<std::size_t>(node.inputs[0])] >= 0) continue;
    const DType dtype = graph.values[static_cast<std::size_t>(node.inputs[0])].dtype;
    if (dtype == DType::kUndefined || node.op->host != nullptr || (node.op->dtypes & dtype_bit(dtype)) != 0) continue;
    if (is_16bit_float(dtype) && (node.op->dtypes & dtype_bit(DType::kFloat32)) != 0) continue;
    fail_node(node, make_error(EVN_ERROR_UNSUPPORTED, "%s of %s is not supported", node.op->name, dtype_name(dtype)));
  }
}

// ------------------------------------------------------------------------------------------------------------ order --

// For each node, the nodes that read its outputs, in one array; edges[first[n]] to edges[first[n + 1]].
struct Successors {
  std::vector<std::size_t> first;
  std::vector<std::int32_t> edges;
};

// A node of a branch also waits for the branch's condition.
template <typename Visit>
void for_each_edge(const Graph& graph, const std::vector<std::int32_t>& producers, Visit visit) {
  const std::vector<ValueId> conditions = region_conditions(graph);
  const auto visit_value = [&](ValueId v, std::size_t n) {
    if (v != kNoValue && producers[static_cast<std::size_t>(v)] >= 0)
      visit(static_cast<std::size_t>(producers[static_cast<std::size_t>(v)]), n);
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    cancellation_point(kNodeWork);
    for (const ValueId v : graph.nodes[n].inputs) visit_value(v, n);
    for (std::int32_t r = graph.nodes[n].region; r >= 0; r = graph.regions[static_cast<std::size_t>(r)].parent) {
      cancellation_point(kNodeWork);
      visit_value(conditions[static_cast<std::size_t>(r)], n);
    }
  }
}

Successors find_successors(const Graph& graph, const std::vector<std::int32_t>& producers) {
  Successors s;
  s.first.assign(graph.nodes.size() + 1, 0);
  for_each_edge(graph, producers, [&](std::size_t from, std::size_t) { ++s.first[from + 1]; });
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    cancellation_point(kNodeWork);
    s.first[n + 1] += s.first[n];
  }
  s.edges.resize(s.first.back());
  std::vector<std::size_t> next(s.first.begin(), s.first.end() - 1);
  for_each_edge(graph, producers, [&](std::size_t from, std::size_t to) { s.edges[next[from]++] = static_cast<std::int32_t>(to); });
  return s;
}

// Nodes in topological order; among those that could come next, the one that the model has first. ONNX asks for this order
// already; models that do not keep to it are put right.
void sort_nodes(Graph& graph, const std::vector<std::int32_t>& producers) {
  const std::size_t count = graph.nodes.size();
  bool sorted = true;
  for_each_edge(graph, producers, [&](std::size_t from, std::size_t to) { sorted &= from < to; });
  if (sorted) return;
  std::vector<std::size_t> waits(count);
  for_each_edge(graph, producers, [&](std::size_t, std::size_t to) { ++waits[to]; });
  const Successors successors = find_successors(graph, producers);
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t n = 0; n < count; ++n) {
    if (waits[n] == 0) ready.push(n);
  }
  std::vector<Node> ordered;
  ordered.reserve(count);
  while (!ready.empty()) {
    cancellation_point(kNodeWork);
    const std::size_t n = ready.top();
    ready.pop();
    ordered.push_back(std::move(graph.nodes[n]));
    for (std::size_t e = successors.first[n]; e < successors.first[n + 1]; ++e) {
      const auto to = static_cast<std::size_t>(successors.edges[e]);
      if (--waits[to] == 0) ready.push(to);
    }
  }
  if (ordered.size() < count) {
    const auto stuck = std::find_if(waits.begin(), waits.end(), [](std::size_t w) { return w != 0; });
    fail_node(graph.nodes[static_cast<std::size_t>(stuck - waits.begin())],
              make_error(EVN_ERROR_INVALID_MODEL, "the node needs its own result: the graph has a cycle"));
  }
  graph.nodes = std::move(ordered);
}

// Gives captured values of bodies the dtypes of the graph around them. `found`: dtypes that the operators of that graph give.
void set_captured_dtypes(const Graph& graph, const std::vector<DType>& found) {
  for (const Node& node : graph.nodes) {
    const auto captures = static_cast<std::size_t>(node.captures);
    for (std::size_t i = 0; i < captures; ++i) {
      cancellation_point(kNodeWork);
      const ValueId inner = node.body->inputs[node.body->inputs.size() - captures + i];
      const auto outer = static_cast<std::size_t>(node.inputs[node.inputs.size() - captures + i]);
      DType dtype = graph.values[outer].dtype;
      if (dtype == DType::kUndefined && is_16bit_float(found[outer])) dtype = found[outer];
      if (dtype != DType::kUndefined) node.body->values[static_cast<std::size_t>(inner)].dtype = dtype;
    }
  }
}

// Also the bodies in it, each of which is a graph for itself by now. Returns whether a Gradient was replaced in any of them.
bool validate_graph(Graph& graph, OpFinder& finder, const Limits& limits, TypeConflicts* conflicts,
                    std::set<std::uint64_t>* literals) {
  const auto complete = [&](Node& node) {
    finder.set_op(node);
    check_arity(node);
    resolve_attributes(node);
  };
  name_nodes(graph);
  take_bodies(graph);
  if (!graph.regions.empty()) name_nodes(graph);
  for (Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    if (node.op != nullptr || is_bound_gradient(node)) continue;  // put in by take_bodies, or has no operator
    complete(node);
  }
  std::erase_if(graph.nodes, has_no_output);  // nobody can read what they make
  check_uses(graph, find_producers(graph));
  take_constants(graph, conflicts, literals);
  sort_nodes(graph, find_producers(graph));
  bool has_gradients = kKeeps_gradient && expand_gradients(graph, limits, complete);
  if (has_gradients) name_nodes(graph);
  check_dtypes(graph);
  set_captured_dtypes(graph, settle_dtypes(graph, conflicts));
  widen_half(graph);
  for (Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    if (node.body != nullptr) has_gradients |= validate_graph(*node.body, finder, limits, conflicts, literals);
  }
  return has_gradients;
}

}  // namespace

void validate_model(Model& model, const Limits& limits, const OperatorRegistry* custom, TypeConflicts* conflicts,
                    std::set<std::uint64_t>* literals) {
  if (model.graph.nodes.size() > limits.nodes) {
    fail(EVN_ERROR_LIMIT, "the model has %zu nodes, the limit is %llu", model.graph.nodes.size(),
         static_cast<unsigned long long>(limits.nodes));
  }
  const Domains domains = import_domains(model.opsets);
  name_nodes(model.graph);
  expand_functions(model, limits, custom);
  OpFinder finder(domains, custom);
  model.has_gradients = validate_graph(model.graph, finder, limits, conflicts, literals);
  finder.tell_callers_node(model);
}

}  // namespace evn
