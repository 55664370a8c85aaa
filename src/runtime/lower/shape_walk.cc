#include "runtime/lower/shape_walk.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/cancel.h"
#include "base/checked.h"
#include "base/heap.h"
#include "base/text.h"
#include "graph/infer.h"
#include "ops/merge.h"

namespace evn {

namespace {

// What the caller's dims have come to at a node whose operator cannot take them: adds the node's name and its inputs' shapes.
Error with_inputs(const Error& e, const Graph& graph, const Node& node, const SharedVector<TensorDesc>& descs) {
  constexpr std::size_t kMostInputs = 4;
  std::string inputs;
  for (std::size_t k = 0; k < std::min(node.inputs.size(), kMostInputs); ++k) {
    const ValueId v = node.inputs[k];
    if (v == kNoValue) continue;
    inputs += (inputs.empty() ? "" : ", ") + ("input " + std::to_string(k)) + " \"" + shorten(graph.values[v].name, 48) + "\" " +
              descs[v].shape.to_string();
  }
  Error whole = make_error(e.status, "%s; %s \"%s\" has %s", e.message, node.op_type.c_str(), shorten(node.name, 80).c_str(),
                           inputs.empty() ? "no inputs" : inputs.c_str());
  return whole.with_node(node.name.c_str()).with_device(e.device).with_bytes(e.bytes_requested, e.bytes_available);
}

}  // namespace

ShapeWalk::End ShapeWalk::walk() {
  for (; w_.state.next_node < w_.graph.nodes.size(); ++w_.state.next_node) {
    const auto i = static_cast<std::int32_t>(w_.state.next_node);
    const Node& node = w_.graph.nodes[w_.state.next_node];
    cancellation_point(kNodeWork);
    in_pieces(static_cast<std::int64_t>(node.inputs.size() + node.outputs.size()), 8, [](std::int64_t, std::int64_t) {});
    if (w_.is_dead(w_.state.next_node)) {
      w_.state.without_step[w_.state.next_node] = true;
      continue;
    }
    const auto pass_node = [&]() -> std::optional<End> {
      if (!is_ready(i)) return End::kMissing;
      if (!is_active(i)) {
        w_.state.without_step[w_.state.next_node] = true;
        return {};
      }
      if (w_.c.nodes[i].mode == NodeMode::kHost) return End::kHost;
      pass(i);
      return {};
    };
    const std::optional<End> end = completing_errors(pass_node, [&](Error& e) {
      const bool is_of_body = e.node[0] != '\0' && w_.graph.nodes[i].name.compare(0, sizeof e.node - 1, e.node) != 0;
      if (is_of_body) return;
      if (e.status == EVN_ERROR_INVALID_ARGUMENT || e.status == EVN_ERROR_INVALID_MODEL) {
        e = with_inputs(e, w_.graph, w_.graph.nodes[i], w_.state.descs);
      } else {
        e.with_node(w_.graph.nodes[i].name.c_str());
      }
    });
    if (end) return *end;
  }
  return End::kGraph;
}

void ShapeWalk::pass(std::int32_t index) {
  const Node& node = w_.graph.nodes[index];
  if (is_merge(node)) return pass_merge(node);
  const std::span<const TensorDesc> outputs = infer(node);
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] != kNoValue) w_.state.descs[node.outputs[k]] = outputs[k];
  }
  if (w_.c.nodes[index].mode == NodeMode::kPlanned) evaluate(node);
}

// The output is what the branch that is taken made.
void ShapeWalk::pass_merge(const Node& node) {
  const ValueId from = chosen_by(node);
  const ValueId to = node.outputs[0];
  if (w_.state.descs[from].dtype != w_.graph.values[to].dtype)
    fail(EVN_ERROR_INVALID_MODEL, "the branches of an If have unlike dtypes");
  w_.state.descs[to] = w_.state.descs[from];
  w_.state.values[to] = w_.state.values[from];
  w_.plan->known[to] = w_.graph.values[from].constant != nullptr ? w_.graph.values[from].constant : w_.plan->known[from];
}

// Whether the condition, a truth value on the host, holds.
bool ShapeWalk::is_true(ValueId condition) const {
  const PlanState& s = w_.state;
  const std::int64_t elements = s.descs[condition].shape.elements();
  if (elements != 1) fail(EVN_ERROR_INVALID_ARGUMENT, "the condition of an If has %lld elements", static_cast<long long>(elements));
  return *static_cast<const std::uint8_t*>(s.values[condition]) != 0;
}

// Whether the branches around the node, which is ready, are taken.
bool ShapeWalk::is_active(std::int32_t index) const {
  for (std::int32_t r = w_.graph.nodes[index].region; r >= 0; r = w_.graph.regions[r].parent) {
    // A condition that is not known now would be computed in an outer branch, which is not taken.
    if (std::as_const(w_.state).values[w_.c.conditions[r]] == nullptr) return false;
    if (is_true(w_.c.conditions[r]) != (r % 2 == 0)) return false;
  }
  return true;
}

void ShapeWalk::require(ValueId v) {
  if (v != kNoValue && w_.state.values[v] == nullptr && w_.state.descs[v].shape.elements() != 0) missing_.push_back(v);
}

// Whether all is known that the node's shapes, or whether it runs, depend on; else missing_ says what is not.
bool ShapeWalk::is_ready(std::int32_t index) {
  const Node& node = w_.graph.nodes[index];
  const CompiledNode& n = w_.c.nodes[index];
  missing_.clear();
  conditions_around_.clear();
  for (std::int32_t r = node.region; r >= 0; r = w_.graph.regions[r].parent) conditions_around_.push_back(r);
  while (!conditions_around_.empty()) {  // outermost first: what is in a branch that is not taken is never known
    const std::int32_t r = conditions_around_.back();
    conditions_around_.pop_back();
    require(w_.c.conditions[r]);
    if (!missing_.empty()) return false;
    if (is_true(w_.c.conditions[r]) != (r % 2 == 0)) return true;
  }
  if (is_merge(node)) {
    require(node.inputs[0]);
    if (missing_.empty() && n.mode == NodeMode::kPlanned) require(chosen_by(node));
    return missing_.empty();
  }
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const bool by_value = node.op->reads_value(k);
    const bool evaluated = n.mode == NodeMode::kPlanned && (k != 0 || (node.op->flags & kOpShapeOnly) == 0);
    if (by_value || evaluated) require(node.inputs[k]);
  }
  return missing_.empty();
}

std::span<const TensorDesc> ShapeWalk::infer(const Node& node) {
  node_values_.clear();
  node_descs_.clear();
  for (const ValueId v : node.inputs) {
    node_values_.push_back(v == kNoValue ? ConstTensor{} : ConstTensor{w_.state.descs[v], w_.state.values[v]});
    node_descs_.push_back(node_values_.back().desc);
  }
  for (const ValueId v : node.outputs) node_descs_.push_back({v == kNoValue ? DType::kUndefined : w_.graph.values[v].dtype, {}});
  const std::span<TensorDesc> inputs = std::span<TensorDesc>(node_descs_).first(node.inputs.size());
  const std::span<TensorDesc> outputs = std::span<TensorDesc>(node_descs_).last(node.outputs.size());
  try {
    infer_node(node, inputs, node_values_, outputs);
  } catch (Error& e) {
    // The model was found right for the dims that it declares; what it does not fit are the run's.
    if (e.status == EVN_ERROR_INVALID_MODEL) e.status = EVN_ERROR_INVALID_ARGUMENT;
    throw;
  }
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] != kNoValue) check_output(node, k, outputs[k]);
  }
  return outputs;
}

void ShapeWalk::check_output(const Node& node, std::size_t k, const TensorDesc& d) const {
  if (!d.shape.is_known()) fail(EVN_ERROR_UNSUPPORTED, "the shape of output %zu of %s depends on data", k, node.op_type.c_str());
  if (const std::size_t bytes = d.size_bytes(); bytes > w_.limits.tensor_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "output %zu of shape %s has %zu bytes, above the limit tensor_bytes", k,
                     d.shape.to_string().c_str(), bytes)
        .with_bytes(bytes, w_.limits.tensor_bytes);
  }
  if (node.op->custom != nullptr) check_agreement(node, k, d);
}

// Kernels of other nodes were chosen by what a host's operator said while the model loaded.
[[gnu::cold]] void ShapeWalk::check_agreement(const Node& node, std::size_t k, const TensorDesc& now) const {
  const Value& then = w_.graph.values[node.outputs[k]];
  bool same = now.dtype == then.dtype && (!then.has_shape || then.shape.rank() == now.shape.rank());
  for (int i = 0; same && then.has_shape && i < now.shape.rank(); ++i) same = then.shape[i] < 0 || then.shape[i] == now.shape[i];
  if (same) return;
  fail(EVN_ERROR_INTERNAL, "operator %.128s says that output %zu is %s%s, and said %s%s when the model was loaded",
       node.op_type.c_str(), k, dtype_name(now.dtype), now.shape.to_string().c_str(), dtype_name(then.dtype),
       then.has_shape ? then.shape.to_string().c_str() : "");
}

void ShapeWalk::evaluate(const Node& node) {
  std::vector<MutableTensor> outputs(node.outputs.size());
  if ((node.op->flags & kOpShapeOnly) != 0) node_values_[0].data = nullptr;
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    const ValueId v = node.outputs[k];
    if (v == kNoValue) continue;
    w_.set_known(v, nullptr, 0);
    outputs[k] = {w_.state.descs[v], const_cast<void*>(w_.state.values[v])};
  }
  if (w_.plan->texts == nullptr) w_.plan->texts = std::make_unique<TextPool>(w_.c.devices[0]->ledger());
  run_reference({node, node_values_, outputs, {w_.plan->texts.get(), 0}});
}

}  // namespace evn
