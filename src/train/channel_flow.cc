#include "train/channel_flow.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/cancel.h"

namespace evn_train {
namespace {

constexpr std::size_t kMostSpans = 1024;  // along an axis: Concat of Concat doubles them

const Flow kNoFlow;

std::string text_of(const Node& node) { return node.op_type + " " + node.name; }

}  // namespace

std::int64_t total(const std::vector<ChannelSpan>& spans) {
  std::int64_t sum = 0;
  for (const ChannelSpan& s : spans) {
    if (__builtin_add_overflow(sum, s.length, &sum)) return INT64_MAX;
  }
  return sum;
}

std::vector<ChannelSpan> spans_along(const Flow& flow, std::int64_t length) {
  const std::int64_t sum = total(flow.spans);
  if (sum <= 0 || length <= 0 || length % sum != 0 || (length != sum && !flow.is_flat)) return {};
  std::vector<ChannelSpan> spans = flow.spans;
  for (ChannelSpan& s : spans) s.length *= length / sum;  // at most `length`
  return spans;
}

ChannelFlow::ChannelFlow(const Graph& graph)
    : graph_(graph), flows_(graph.values.size()), references_(graph.values.size()), understood_(graph.values.size()) {
  for (const ValueId v : graph.inputs) {
    const Value& input = graph.values[at(v)];
    flows_[at(v)].has_rank = input.has_shape;
    if (input.has_shape) flows_[at(v)].dims.assign(input.shape.dims().begin(), input.shape.dims().end());
  }
}

// ---------------------------------------------------------------------------------------------- what rules read --

std::string ChannelFlow::node_text() const { return text_of(node()); }

const Flow& ChannelFlow::input(std::size_t i) const { return has_input(i) ? flows_[at(node().inputs[i])] : kNoFlow; }

const evn::Weight* ChannelFlow::constant(std::size_t i) const {
  return has_input(i) ? graph_.values[at(node().inputs[i])].constant.get() : nullptr;
}

bool ChannelFlow::is_constant(std::size_t i) const {
  const evn::Weight* const weight = constant(i);
  return weight != nullptr && weight->desc.dtype == DType::kFloat32 && weight->size_bytes > 0;
}

std::vector<std::int64_t> ChannelFlow::constant_dims(std::size_t i) const {
  const std::span<const std::int64_t> dims = constant(i)->desc.shape.dims();
  return {dims.begin(), dims.end()};
}

bool ChannelFlow::numbers_of(std::size_t i, std::vector<std::int64_t>* numbers) const {
  const evn::Weight* const weight = constant(i);
  if (weight == nullptr || weight->desc.dtype != DType::kInt64 || weight->desc.shape.rank() > 1) return false;
  numbers->resize(weight->size_bytes / sizeof(std::int64_t));
  if (!numbers->empty()) std::memcpy(numbers->data(), weight->bytes(), weight->size_bytes);
  return true;
}

float ChannelFlow::number_at(std::size_t i, std::size_t index, float otherwise) const {
  if (!is_constant(i) || index >= constant(i)->size_bytes / sizeof(float)) return otherwise;
  float value = 0;
  std::memcpy(&value, constant(i)->as<char>() + index * sizeof(float), sizeof value);
  return value;
}

void ChannelFlow::set_output(Flow flow) {
  const Node& n = node();
  if (n.outputs.empty() || n.outputs[0] == kNoValue) return;
  if (flow.spans.size() > kMostSpans) {
    block(flow.spans, node_text() + " puts too many channels side by side");
    flow.spans.clear();
  }
  flows_[at(n.outputs[0])] = std::move(flow);
}

// ------------------------------------------------------------------------------------------------------- channels --

std::size_t ChannelFlow::root(std::size_t dim) {
  while (dims_[dim].parent != dim) {
    dims_[dim].parent = dims_[dims_[dim].parent].parent;
    dim = dims_[dim].parent;
  }
  return dim;
}

ChannelSpan ChannelFlow::new_dim(std::int64_t count) {
  dims_.push_back({dims_.size(), count, {}, count, {}});
  return {dims_.size() - 1, count};
}

void ChannelFlow::add_convolution(const std::vector<ChannelSpan>& spans) {
  for (const ChannelSpan& s : spans) {
    if (s.group != ChannelSpan::kNone) dims_[s.group].nodes.push_back(node_);
  }
}

void ChannelFlow::tie(std::size_t a, std::size_t b, std::int64_t units) {
  a = root(a);
  b = root(b);
  units = std::gcd(units, std::gcd(dims_[a].units, dims_[b].units));
  if (a > b) std::swap(a, b);
  if (a != b) {
    dims_[b].parent = a;
    if (dims_[a].reason.empty()) dims_[a].reason = dims_[b].reason;
  }
  dims_[a].units = units;
}

void ChannelFlow::unite(const std::vector<ChannelSpan>& a, const std::vector<ChannelSpan>& b) {
  const auto fits = [](const ChannelSpan& x, const ChannelSpan& y) { return x.length == y.length; };
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end(), fits)) {
    block(a, node_text() + " reads channels that are divided in another way");
    block(b, node_text() + " reads channels that are divided in another way");
    return;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].group != ChannelSpan::kNone && b[i].group != ChannelSpan::kNone) {
      tie(a[i].group, b[i].group, 0);  // gcd(0, n) is n
    } else {
      block({a[i], b[i]}, node_text() + " reads them with others that come from no convolution");
    }
  }
}

void ChannelFlow::block(const std::vector<ChannelSpan>& spans, const std::string& reason) {
  for (const ChannelSpan& s : spans) {
    if (s.group == ChannelSpan::kNone) continue;
    std::string& kept = dims_[root(s.group)].reason;
    if (kept.empty()) kept = reason;
  }
}

void ChannelFlow::block_inputs(const char* why) {
  for (std::size_t i = 0; i < node().inputs.size(); ++i) {
    if (input(i).has_channels()) block(input(i).spans, node_text() + " " + why);
  }
}

// ------------------------------------------------------------------------------------------------------ constants --

void ChannelFlow::bind(std::size_t input, const std::vector<Axis>& axes) {
  const ValueId value = node().inputs[input];
  const std::vector<std::int64_t> dims = constant_dims(input);
  std::vector<Binding>& bindings = bindings_[value];
  bindings.resize(dims.size());
  for (std::size_t a = 0; a < dims.size(); ++a) {
    std::vector<ChannelSpan> spans = {{ChannelSpan::kNone, dims[a]}};
    Part part = Part::kOther;
    for (const Axis& axis : axes) {
      if (axis.axis != a) continue;
      spans = axis.spans;
      part = axis.part;
    }
    Binding& b = bindings[a];
    if (b.is_set) {
      unite(b.spans, spans);
      if (b.part != part) block(spans, node_text() + " shares " + name_of(graph_, value) + " with a node of another kind");
    } else {
      b = {true, std::move(spans), part};
    }
  }
  ++understood_[at(value)];
}

bool ChannelFlow::bind_operand(std::size_t i, const Flow& to) {
  const bool fixed = is_constant(i);
  if (input(i).has_channels() || (!fixed && !input(i).has_rank)) return false;
  const std::vector<std::int64_t> dims = fixed ? constant_dims(i) : input(i).dims;
  const std::size_t from_right = to.dims.size() - to.axis;  // of the channels' axis
  if (dims.size() > to.dims.size()) return false;
  if (!fixed) return dims.size() < from_right || dims[dims.size() - from_right] == 1;
  if (dims.size() < from_right || dims[dims.size() - from_right] == 1) {
    bind(i, {});
    return true;
  }
  std::vector<ChannelSpan> spans = spans_along(to, dims[dims.size() - from_right]);
  if (spans.empty()) return false;
  bind(i, {{dims.size() - from_right, std::move(spans)}});
  return true;
}

void ChannelFlow::note_groups(std::vector<ChannelSpan> spans) { grouped_.push_back({node_, std::move(spans)}); }

void ChannelFlow::note_reshape(std::size_t position, std::vector<ChannelSpan> spans) {
  reshapes_.push_back({node_, position, std::move(spans)});
}

// ---------------------------------------------------------------------------------------------------------- whole --

void ChannelFlow::count_references() {
  for (const Node& n : graph_.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    for (const ValueId v : n.inputs) {
      if (v != kNoValue) ++references_[at(v)];
    }
  }
  for (const ValueId v : graph_.outputs) ++references_[at(v)];
}

// Outputs of the model, and nodes that read a constant in another way than the channels need it.
void ChannelFlow::block_what_others_read() {
  for (const ValueId v : graph_.outputs) block(flows_[at(v)].spans, "they reach the output " + name_of(graph_, v));
  for (const auto& [value, bindings] : bindings_) {
    evn::cancellation_point(evn::kNodeWork);
    if (references_[at(value)] == understood_[at(value)]) continue;
    for (const Binding& b : bindings) block(b.spans, name_of(graph_, value) + " is read in another way too");
  }
}

Channels ChannelFlow::find() {
  count_references();
  std::string keeps_all;
  for (node_ = 0; node_ < graph_.nodes.size(); ++node_) {
    evn::cancellation_point(evn::kNodeWork);
    if (has_graph_attribute(node()) && keeps_all.empty()) keeps_all = "the model has " + node_text() + ", whose body may read them";
    follow_channels(this);
  }
  block_what_others_read();
  if (!keeps_all.empty()) {
    for (std::size_t d = 0; d < dims_.size(); ++d) block({{d, 0}}, keeps_all);
  }
  return collect();
}

Channels ChannelFlow::collect() {
  Channels found;
  std::map<std::size_t, std::size_t> groups;  // by root
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    evn::cancellation_point(evn::kNodeWork);
    if (dims_[d].nodes.empty()) continue;
    const Dim& r = dims_[root(d)];
    const auto [at, is_new] = groups.emplace(root(d), found.groups.size());
    if (is_new) {
      ChannelGroup& g = found.groups.emplace_back();
      g.name = text_of(graph_.nodes[dims_[d].nodes[0]]);
      g.channels = dims_[d].count;
      g.units = r.units;
      g.reason = r.reason;
      if (g.reason.empty() && g.units < 2) g.reason = "they can leave only all together";
    }
    for (const std::size_t n : dims_[d].nodes) found.groups[at->second].convolutions.push_back(text_of(graph_.nodes[n]));
  }
  const auto renumber = [&](ChannelSpan* s) {
    const auto at = s->group == ChannelSpan::kNone ? groups.end() : groups.find(root(s->group));
    s->group = at == groups.end() ? ChannelSpan::kNone : at->second;
  };
  for (auto& [value, bindings] : bindings_) {
    evn::cancellation_point(evn::kNodeWork);
    for (std::size_t axis = 0; axis < bindings.size(); ++axis) {
      std::int64_t first = 0;
      for (ChannelSpan s : bindings[axis].spans) {
        renumber(&s);
        const Part part = bindings[axis].part;
        if (s.group != ChannelSpan::kNone)
          found.groups[s.group].uses.push_back({value, axis, first, s.length, part == Part::kFilter, part == Part::kStatistic});
        first += s.length;
      }
    }
  }
  for (GroupedConvolution& g : grouped_) {
    for (ChannelSpan& s : g.spans) renumber(&s);
  }
  for (ReshapeNumber& r : reshapes_) {
    for (ChannelSpan& s : r.spans) renumber(&s);
  }
  found.grouped = std::move(grouped_);
  found.reshapes = std::move(reshapes_);
  return found;
}

Channels find_channels(const Graph& graph) { return ChannelFlow(graph).find(); }

}  // namespace evn_train
