// See widen_half.h. Constants are cast by nodes, too: fold_constants runs them, so that limits and the ledger hold for them.
#include "graph/passes/widen_half.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/edit.h"
#include "ops/merge.h"
#include "ops/op.h"

namespace evn {
namespace {

constexpr int kCastVersion = 13;  // of the Casts that are put in

using DTypes = std::vector<DType>;  // per value

DTypes input_dtypes(const Node& node, const DTypes& dtypes) {
  DTypes inputs;
  for (const ValueId v : node.inputs) inputs.push_back(v == kNoValue ? DType::kUndefined : dtypes[v]);
  return inputs;
}

DType output_dtype(const Node& node, const DTypes& inputs, std::size_t output) {
  if (node.op->custom != nullptr) {  // may know nothing without ranks; its error, if it is one, comes with inference
    try {
      return node.op->output_dtype(node, inputs, static_cast<int>(output));
    } catch (const Error&) {
      return inputs.empty() ? DType::kUndefined : inputs[0];
    }
  }
  if (node.op->output_dtype != nullptr) return node.op->output_dtype(node, inputs, static_cast<int>(output));
  return inputs.empty() ? DType::kUndefined : inputs[0];
}

// Whether the operator lacks the type that it gets, and has float32.
bool must_widen(const Node& node, const DTypes& dtypes) {
  const ValueId decisive = !node.inputs.empty() ? node.inputs[0] : !node.outputs.empty() ? node.outputs[0] : kNoValue;
  if (decisive == kNoValue || !is_16bit_float(dtypes[decisive])) return false;
  return (node.op->dtypes & dtype_bit(dtypes[decisive])) == 0 && (node.op->dtypes & dtype_bit(DType::kFloat32)) != 0;
}

// The dtypes as the model means them; returns whether some node must be widened. A node with an error of its own is left to
// inference.
bool find_dtypes(const Graph& graph, DTypes* dtypes) {
  for (const Value& value : graph.values) dtypes->push_back(value.dtype);
  bool found = false;
  try {
    for (const Node& node : graph.nodes) {
      const DTypes inputs = input_dtypes(node, *dtypes);
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        cancellation_point();
        if (node.outputs[i] != kNoValue) (*dtypes)[node.outputs[i]] = output_dtype(node, inputs, i);
      }
      found |= must_widen(node, *dtypes);
    }
  } catch (const Error&) {
    return false;
  }
  return found;
}

class Widener {
 public:
  Widener(Graph& graph, DTypes dtypes) : graph_(graph), narrow_(dtypes), now_(std::move(dtypes)), wide_(now_.size(), kNoValue) {
    for (const Node& node : graph.nodes) names_.insert(node.name);
    is_output_.assign(graph.values.size(), false);
    for (const ValueId v : graph.outputs) is_output_[v] = true;
    computed_.assign(graph.values.size(), false);
    is_read_wide_.assign(graph.values.size(), false);
    for (const Value& value : graph.values) is_wrapped_.push_back(static_cast<bool>(value.wraps));
    for (const Node& node : graph.nodes) {
      const bool wraps = makes_wrapped(node);
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) is_wrapped_[v] = wraps || graph.values[v].wraps;
      }
      const bool is_wide = is_merge(node) ? !wraps : node.op->host == nullptr || must_widen(node, narrow_);
      for (const ValueId v : node.inputs) {
        if (v != kNoValue && is_wide && !reads_narrow(node)) is_read_wide_[v] = true;
      }
      for (const ValueId v : node.outputs) {
        if (v != kNoValue) computed_[v] = true;
      }
    }
  }

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    widen_sources(nodes);
    for (Node& node : nodes) widen_node(std::move(node));
    for (std::size_t v = 0; v < computed_.size(); ++v) {
      if (computed_[v] && !is_output_[v] && now_[v] != DType::kUndefined) graph_.values[v].dtype = now_[v];
    }
  }

 private:
  // Operators of the host, bodies, whose types are their own matter, and operators of sequences, optionals and maps get what the
  // model says.
  bool reads_narrow(const Node& node) const {
    if (node.op->custom != nullptr || node.body != nullptr) return true;
    return node.op->host != nullptr && !is_op(node, "Identity") && !is_merge(node) && !must_widen(node, narrow_);
  }

  // Returns true for sequences and optionals.
  bool makes_wrapped(const Node& node) const {
    for (const char* name :
         {"SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceMap", "SplitToSequence", "Optional"}) {
      if (is_op(node, name)) return true;
    }
    const auto is_wrapped = [&](ValueId v) { return v != kNoValue && is_wrapped_[v]; };
    return (is_op(node, "Identity") || is_merge(node)) && std::any_of(node.inputs.begin(), node.inputs.end(), is_wrapped);
  }

  // Inputs and constants that nodes read; in no branch, so that all may read what the Casts make.
  void widen_sources(const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      for (const ValueId v : node.inputs) {
        if (v == kNoValue || computed_[v] || wide_[v] != kNoValue || !is_16bit_float(narrow_[v]) || !is_read_wide_[v]) continue;
        wide_[v] = add_value(v);
        add_cast(v, wide_[v], DType::kFloat32, -1);
      }
    }
  }

  void widen_node(Node node) {
    for (ValueId& v : node.inputs) {
      if (v == kNoValue) continue;
      if (reads_narrow(node)) {
        v = narrow_again(v, node.region);
      } else if (wide_[v] != kNoValue) {
        v = wide_[v];
      }
    }
    if (is_op(node, "Cast") && is_16bit_float(static_cast<DType>(attr_int(node, 0)))) {
      node.resolved[0] = static_cast<std::int64_t>(DType::kFloat32);
      for (Attribute& a : node.attributes) {
        if (a.name == "to") a.value = static_cast<std::int64_t>(DType::kFloat32);
      }
    }
    const DTypes inputs = input_dtypes(node, now_);
    const std::size_t at = graph_.nodes.size();
    graph_.nodes.emplace_back();
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      cancellation_point();
      if (node.outputs[i] != kNoValue) widen_output(&node.outputs[i], output_dtype(node, inputs, i), node.region);
    }
    graph_.nodes[at] = std::move(node);
  }

  // `made` is the output's dtype now; it may still be narrow where an attribute says so.
  void widen_output(ValueId* output, DType made, std::int32_t region) {
    const ValueId v = *output;
    now_[v] = made;
    if (!is_16bit_float(narrow_[v])) return;
    if (is_16bit_float(made)) {
      if (!is_read_wide_[v]) return;
      wide_[v] = add_value(v);
      add_cast(v, wide_[v], DType::kFloat32, region);
    } else if (is_output_[v]) {
      wide_[v] = *output = add_value(v);
      now_[v] = narrow_[v];
      add_cast(*output, v, narrow_[v], region);
    }
  }

  // Casts a value that is computed as float32 back to its 16-bit type.
  ValueId narrow_again(ValueId v, std::int32_t region) {
    if (!is_16bit_float(narrow_[v]) || now_[v] == narrow_[v]) return v;
    const ValueId back = add_value(v);
    graph_.values[back].name = graph_.values[v].name + "/" + dtype_name(narrow_[v]);
    graph_.values[back].dtype = now_[back] = narrow_[v];
    add_cast(v, back, narrow_[v], region);
    return back;
  }

  ValueId add_value(ValueId narrow) {
    Value value;
    value.name = graph_.values[narrow].name + "/float32";
    value.dtype = DType::kFloat32;
    if (!computed_[narrow]) {
      value.has_shape = graph_.values[narrow].has_shape;
      value.shape = graph_.values[narrow].shape;
    }
    graph_.values.push_back(std::move(value));
    now_.push_back(DType::kFloat32);
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  void add_cast(ValueId from, ValueId to, DType dtype, std::int32_t region) {
    Node node;
    node.name = graph_.values[from].name + "/Cast";
    while (!names_.insert(node.name).second) node.name += '_';
    node.op_type = "Cast";
    node.since_version = kCastVersion;
    node.op = find_op("", "Cast", kCastVersion);
    node.inputs = {from};
    node.outputs = {to};
    node.attributes = {{"to", static_cast<std::int64_t>(dtype)}};
    node.resolved = {static_cast<std::int64_t>(dtype)};
    node.region = region;
    graph_.nodes.push_back(std::move(node));
  }

  Graph& graph_;
  const DTypes narrow_;  // as the model means them
  DTypes now_;
  std::vector<ValueId> wide_;  // per value of the model: what nodes read in its place; kNoValue: itself
  std::vector<bool> is_output_;
  std::vector<bool> computed_;
  std::vector<bool> is_wrapped_;    // as far as it is known before inference
  std::vector<bool> is_read_wide_;  // by an operator that must have float32, or may
  std::set<std::string> names_;
};

}  // namespace

std::vector<DType> settle_dtypes(Graph& graph, TypeConflicts* conflicts) {
  DTypes dtypes;
  find_dtypes(graph, &dtypes);
  std::vector<bool> is_output(graph.values.size(), false);
  for (const ValueId v : graph.outputs) is_output[v] = true;
  for (const Node& node : graph.nodes) {
    if (node.body != nullptr) continue;  // whose types come with inference
    for (const ValueId v : node.outputs) {
      cancellation_point();
      if (v == kNoValue || is_output[v] || dtypes[v] == DType::kUndefined) continue;
      Value& value = graph.values[v];
      if (value.dtype == DType::kUndefined || value.dtype == dtypes[v]) continue;
      if (conflicts != nullptr) {
        conflicts->push_back({node.name, value.name, TensorDesc{value.dtype, {}, value.wraps}.type_string(),
                              TensorDesc{dtypes[v], {}, value.wraps}.type_string()});
      }
      value.dtype = dtypes[v];
    }
  }
  return dtypes;
}

bool widen_half(Graph& graph) {
  DTypes dtypes;
  if (!find_dtypes(graph, &dtypes)) return false;
  Widener(graph, std::move(dtypes)).run();
  return true;
}

}  // namespace evn
