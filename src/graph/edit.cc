// See edit.h.
#include "graph/edit.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/cancel.h"
#include "base/error.h"

namespace evn {

GraphEditor::GraphEditor(Graph& graph) : graph_(graph) {
  const std::size_t values = graph.values.size();
  head_.assign(values, -1);
  use_count_.assign(values, 0);
  producer_.assign(values, -1);
  output_index_.assign(values, -1);
  is_output_.assign(values, false);
  is_input_.assign(values, false);
  is_read_by_inserted_.assign(graph.values.size(), false);
  removed_.assign(graph.nodes.size(), false);
  first_use_.reserve(graph.nodes.size());
  for (ValueId v : graph.outputs) is_output_[v] = true;
  for (ValueId v : graph.inputs) is_input_[v] = true;
  for (int n = 0; n < node_count(); ++n) {
    cancellation_point(16);
    first_use_.push_back(static_cast<std::int32_t>(uses_.size()));
    for (ValueId v : node(n).inputs) {
      cancellation_point(2);
      uses_.push_back({kNoValue, n, -1, -1});
      link(static_cast<int>(uses_.size()) - 1, v);
    }
    const std::vector<ValueId>& outputs = node(n).outputs;
    for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
      cancellation_point();
      if (outputs[i] == kNoValue) continue;
      producer_[outputs[i]] = n;
      output_index_[outputs[i]] = i;
    }
  }
}

void GraphEditor::link(int use, ValueId v) {
  Use& u = uses_[use];
  u.value = v;
  u.previous = -1;
  u.next = -1;
  if (v == kNoValue) return;
  u.next = head_[v];
  if (u.next >= 0) uses_[u.next].previous = use;
  head_[v] = use;
  ++use_count_[v];
}

void GraphEditor::unlink(int use) {
  const Use& u = uses_[use];
  if (u.value == kNoValue) return;
  if (u.previous >= 0) {
    uses_[u.previous].next = u.next;
  } else {
    head_[u.value] = u.next;
  }
  if (u.next >= 0) uses_[u.next].previous = u.previous;
  --use_count_[u.value];
}

int GraphEditor::only_consumer(ValueId v) const {
  if (v == kNoValue || is_output_[v] || use_count_[v] != 1) return -1;
  return uses_[head_[v]].node;
}

void GraphEditor::grow_inputs(int n, int count) {
  const int old_first = first_use_[n];
  const int old_count = static_cast<int>(node(n).inputs.size());
  first_use_[n] = static_cast<std::int32_t>(uses_.size());
  for (int i = 0; i < count; ++i) uses_.push_back({kNoValue, n, -1, -1});
  for (int i = 0; i < old_count; ++i) {
    unlink(old_first + i);
    link(first_use_[n] + i, node(n).inputs[i]);
  }
  node(n).inputs.resize(count, kNoValue);
}

void GraphEditor::set_input(int n, int input, ValueId v) {
  if (input >= static_cast<int>(node(n).inputs.size())) grow_inputs(n, input + 1);
  const ValueId old = node(n).inputs[input];
  unlink(first_use_[n] + input);
  link(first_use_[n] + input, v);
  node(n).inputs[input] = v;
  forget_if_dead(old);
  changed_ = true;
}

void GraphEditor::shrink_inputs(int n, int count) {
  std::vector<ValueId>& inputs = node(n).inputs;
  while (static_cast<int>(inputs.size()) > count) {
    const ValueId v = inputs.back();
    unlink(first_use_[n] + static_cast<int>(inputs.size()) - 1);
    inputs.pop_back();
    forget_if_dead(v);
  }
  changed_ = true;
}

void GraphEditor::forget_if_dead(ValueId v) {
  if (v != kNoValue && is_dead(v)) value(v).constant.reset();
}

void GraphEditor::set_output(int n, int output, ValueId v) {
  const ValueId old = node(n).outputs[output];
  if (old != kNoValue && producer_[old] == n) producer_[old] = -1;
  node(n).outputs[output] = v;
  if (v != kNoValue) {
    producer_[v] = n;
    output_index_[v] = output;
  }
  changed_ = true;
}

void GraphEditor::replace_uses(ValueId from, ValueId to) {
  if (from == to) return;
  for (int use = head_[from]; use >= 0;) {
    cancellation_point(2);
    const int next = uses_[use].next;
    const int n = uses_[use].node;
    unlink(use);
    link(use, to);
    node(n).inputs[use - first_use_[n]] = to;
    use = next;
  }
  changed_ = true;
}

void GraphEditor::remove_node(int n) {
  Node& removed = node(n);
  for (std::size_t i = 0; i < removed.inputs.size(); ++i) {
    unlink(first_use_[n] + static_cast<int>(i));
    forget_if_dead(removed.inputs[i]);
  }
  for (ValueId v : removed.outputs) {
    if (v != kNoValue && producer_[v] == n) producer_[v] = -1;
  }
  removed = Node{};
  removed_[n] = true;
  changed_ = true;
}

ValueId GraphEditor::add_constant(std::string name, WeightPtr weight) {
  Value v;
  v.name = std::move(name);
  v.dtype = weight->desc.dtype;
  v.has_shape = true;
  v.shape = weight->desc.shape;
  v.constant = std::move(weight);
  return append(std::move(v));
}

ValueId GraphEditor::add_value(std::string name, DType dtype) {
  Value v;
  v.name = std::move(name);
  v.dtype = dtype;
  return append(std::move(v));
}

ValueId GraphEditor::append(Value v) {
  graph_.values.push_back(std::move(v));
  head_.push_back(-1);
  use_count_.push_back(0);
  producer_.push_back(-1);
  output_index_.push_back(-1);
  is_output_.push_back(false);
  is_input_.push_back(false);
  is_read_by_inserted_.push_back(false);
  changed_ = true;
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

void GraphEditor::insert_node(int n, Node node) {
  for (const ValueId v : node.inputs) {
    if (v != kNoValue) is_read_by_inserted_[v] = true;
  }
  inserted_.emplace_back(n, std::move(node));
  changed_ = true;
}

void GraphEditor::merge_inserted() {
  std::vector<std::size_t> order(inserted_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return inserted_[a].first != inserted_[b].first ? inserted_[a].first < inserted_[b].first : a < b;
  });
  std::vector<Node> all;
  std::vector<bool> removed;
  std::size_t next = 0;
  for (std::size_t n = 0; n <= graph_.nodes.size(); ++n) {
    for (; next < order.size() && inserted_[order[next]].first == static_cast<int>(n); ++next) {
      all.push_back(std::move(inserted_[order[next]].second));
      removed.push_back(false);
    }
    if (n == graph_.nodes.size()) break;
    cancellation_point(32);
    all.push_back(std::move(graph_.nodes[n]));
    removed.push_back(removed_[n]);
  }
  graph_.nodes = std::move(all);
  removed_ = std::move(removed);
  inserted_.clear();
}

bool GraphEditor::commit() {
  if (!inserted_.empty()) merge_inserted();
  std::size_t kept = 0;
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    cancellation_point(kept != n ? 32 : 8);
    if (removed_[n]) continue;
    if (kept != n) graph_.nodes[kept] = std::move(graph_.nodes[n]);
    ++kept;
  }
  graph_.nodes.resize(kept);
  return changed_;
}

void check_deadline(const PassContext& context, std::size_t count) {
  cancellation_point(kNodeWork);
  if (count % 64 != 0 || context.deadline_ns == UINT64_MAX) return;
  if (deadline_clock_ns() > context.deadline_ns)
    fail(EVN_ERROR_TIMEOUT, "the time to load the model ended while the graph was optimized");
}

bool is_op(const Node& node, const char* op_type) { return node.domain.empty() && node.op_type == op_type; }

bool scalar_constant(const Graph& graph, ValueId v, int rank, float* out) {
  if (v == kNoValue) return false;
  const Weight* w = graph.values[v].constant.get();
  if (w == nullptr || w->desc.dtype != DType::kFloat32) return false;
  const Shape& shape = w->desc.shape;
  if (shape.rank() > std::max(rank, 0)) return false;
  if (!std::all_of(shape.dims().begin(), shape.dims().end(), [](std::int64_t d) { return d == 1; })) return false;
  std::memcpy(out, w->bytes(), sizeof *out);
  return true;
}

bool float_constant(const Graph& graph, ValueId v, std::vector<double>* out) {
  if (v == kNoValue) return false;
  const Weight* w = graph.values[v].constant.get();
  if (w == nullptr || w->desc.dtype != DType::kFloat32) return false;
  const std::size_t count = w->size_bytes / sizeof(float);
  out->resize(count);
  const char* bytes = w->as<char>();
  for (std::size_t i = 0; i < count; ++i) {
    float f;
    std::memcpy(&f, bytes + i * sizeof f, sizeof f);
    (*out)[i] = f;
  }
  return true;
}

bool int_constant(const Graph& graph, ValueId v, std::vector<std::int64_t>* out) {
  if (v == kNoValue) return false;
  const Weight* w = graph.values[v].constant.get();
  if (w == nullptr || w->desc.dtype != DType::kInt64) return false;
  out->resize(w->size_bytes / sizeof(std::int64_t));
  if (!out->empty()) std::memcpy(out->data(), w->bytes(), w->size_bytes);
  return true;
}

const void* aligned_bytes(const Weight& weight, std::vector<std::uint64_t>& storage) {
  if (weight.aligned) return weight.bytes();
  storage.resize((weight.size_bytes + 7) / 8);
  std::memcpy(storage.data(), weight.bytes(), weight.size_bytes);
  return storage.data();
}

}  // namespace evn
