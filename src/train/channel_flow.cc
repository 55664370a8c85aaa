#include "train/channel_flow.h"

#include <cstring>
#include <numeric>

#include "base/cancel.h"

namespace evn_train {
namespace {

constexpr std::size_t kMostSpans = 1024;  // along an axis: Concat of Concat doubles them

const std::string kNoName;
const Flow kNoFlow;

std::string text_of(const OnnxNode& node) {
  const std::string& name = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
  return node.op_type + " " + name;
}

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

ChannelFlow::ChannelFlow(const OnnxModel& model) : model_(model) {
  for (std::size_t i = 0; i < model.initializers.size(); ++i) initializers_.emplace(model.initializers[i].name, i);
  for (const OnnxValue& input : model.inputs) {
    Flow flow;
    flow.has_rank = input.has_shape;
    flow.dims = input.dims;
    flows_.insert_or_assign(input.name, std::move(flow));
  }
}

// ---------------------------------------------------------------------------------------------- what rules read --

std::string ChannelFlow::node_text() const { return text_of(node()); }

const std::string& ChannelFlow::input_name(std::size_t i) const { return i < node().inputs.size() ? node().inputs[i] : kNoName; }

const Flow& ChannelFlow::input(std::size_t i) const {
  const auto found = flows_.find(input_name(i));
  return found == flows_.end() ? kNoFlow : found->second;
}

bool ChannelFlow::is_initializer(std::size_t i) const {
  const auto found = initializers_.find(input_name(i));
  if (input_name(i).empty() || found == initializers_.end()) return false;
  const OnnxTensor& t = model_.initializers[found->second];
  std::size_t size = sizeof(float);
  for (const std::int64_t dim : t.dims) {
    if (dim <= 0 || __builtin_mul_overflow(size, static_cast<std::size_t>(dim), &size)) return false;
  }
  return t.dtype == kFloat && t.data.size() == size;
}

const std::vector<std::int64_t>& ChannelFlow::initializer_dims(std::size_t i) const {
  return model_.initializers[initializers_.find(input_name(i))->second].dims;
}

bool ChannelFlow::numbers_of(std::size_t i, std::vector<std::int64_t>* numbers) const {
  const auto found = initializers_.find(input_name(i));
  if (input_name(i).empty() || found == initializers_.end()) return false;
  const OnnxTensor& t = model_.initializers[found->second];
  if (t.dtype != kInt64 || t.dims.size() > 1 || t.data.size() % sizeof(std::int64_t) != 0) return false;
  numbers->resize(t.data.size() / sizeof(std::int64_t));
  if (!numbers->empty()) std::memcpy(numbers->data(), t.data.data(), t.data.size());
  return true;
}

float ChannelFlow::number_at(std::size_t i, std::size_t index, float otherwise) const {
  if (!is_initializer(i)) return otherwise;
  const std::string_view data = model_.initializers[initializers_.find(input_name(i))->second].data;
  if (index >= data.size() / sizeof(float)) return otherwise;
  float value = 0;
  std::memcpy(&value, data.data() + index * sizeof(float), sizeof value);
  return value;
}

void ChannelFlow::set_output(Flow flow) {
  const OnnxNode& n = node();
  if (n.outputs.empty() || n.outputs[0].empty()) return;
  if (flow.spans.size() > kMostSpans) {
    block(flow.spans, node_text() + " puts too many channels side by side");
    flow.spans.clear();
  }
  flows_.insert_or_assign(n.outputs[0], std::move(flow));
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

// --------------------------------------------------------------------------------------------------- initializers --

void ChannelFlow::bind(std::size_t input, const std::vector<Axis>& axes) {
  const std::string& name = input_name(input);
  const std::vector<std::int64_t>& dims = initializer_dims(input);
  std::vector<Binding>& bindings = bindings_[initializers_.find(name)->second];
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
      if (b.part != part) block(spans, node_text() + " shares " + name + " with a node of another kind");
    } else {
      b = {true, std::move(spans), part};
    }
  }
  ++understood_[name];
}

bool ChannelFlow::bind_operand(std::size_t i, const Flow& to) {
  const bool constant = is_initializer(i);
  if (input(i).has_channels() || (!constant && !input(i).has_rank)) return false;
  const std::vector<std::int64_t>& dims = constant ? initializer_dims(i) : input(i).dims;
  const std::size_t from_right = to.dims.size() - to.axis;  // of the channels' axis
  if (dims.size() > to.dims.size()) return false;
  if (!constant) return dims.size() < from_right || dims[dims.size() - from_right] == 1;
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

// Every value is made once, before it is read.
bool ChannelFlow::is_in_order() const {
  std::set<std::string_view> made;
  for (const OnnxValue& input : model_.inputs) made.insert(input.name);
  for (const OnnxTensor& t : model_.initializers) made.insert(t.name);
  if (initializers_.size() != model_.initializers.size()) return false;
  for (const OnnxNode& n : model_.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    for (const std::string& input : n.inputs) {
      if (!input.empty() && !made.contains(input)) return false;
    }
    for (const std::string& output : n.outputs) {
      if (!output.empty() && !made.insert(output).second) return false;
    }
  }
  return true;
}

void ChannelFlow::count_references() {
  for (const OnnxNode& n : model_.nodes) {
    evn::cancellation_point(evn::kNodeWork);
    for (const std::string& input : n.inputs) ++references_[input];
  }
  for (const OnnxValue& output : model_.outputs) ++references_[output.name];
  for (const OnnxValue& input : model_.inputs) ++references_[input.name];  // an initializer that is an input too
}

// Outputs of the model, and nodes that read an initializer in another way than the channels need it.
void ChannelFlow::block_what_others_read() {
  for (const OnnxValue& output : model_.outputs) {
    const auto found = flows_.find(output.name);
    if (found != flows_.end()) block(found->second.spans, "they reach the output " + output.name);
  }
  for (const auto& [initializer, bindings] : bindings_) {
    evn::cancellation_point(evn::kNodeWork);
    const std::string& name = model_.initializers[initializer].name;
    if (references_[name] == understood_[name]) continue;
    for (const Binding& b : bindings) block(b.spans, name + " is read in another way too");
  }
}

Channels ChannelFlow::find() {
  count_references();
  std::string keeps_all = is_in_order() ? "" : "the nodes of the model are in no order";
  for (node_ = 0; node_ < model_.nodes.size(); ++node_) {
    evn::cancellation_point(evn::kNodeWork);
    if (has_body(node()) && keeps_all.empty()) keeps_all = "the model has " + node_text() + ", whose body may read them";
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
      g.name = text_of(model_.nodes[dims_[d].nodes[0]]);
      g.channels = dims_[d].count;
      g.units = r.units;
      g.reason = r.reason;
      if (g.reason.empty() && g.units < 2) g.reason = "they can leave only all together";
    }
    for (const std::size_t n : dims_[d].nodes) found.groups[at->second].convolutions.push_back(text_of(model_.nodes[n]));
  }
  const auto renumber = [&](ChannelSpan* s) {
    const auto at = s->group == ChannelSpan::kNone ? groups.end() : groups.find(root(s->group));
    s->group = at == groups.end() ? ChannelSpan::kNone : at->second;
  };
  for (auto& [initializer, bindings] : bindings_) {
    evn::cancellation_point(evn::kNodeWork);
    for (std::size_t axis = 0; axis < bindings.size(); ++axis) {
      std::int64_t first = 0;
      for (ChannelSpan s : bindings[axis].spans) {
        renumber(&s);
        const Part part = bindings[axis].part;
        if (s.group != ChannelSpan::kNone)
          found.groups[s.group].uses.push_back(
              {initializer, axis, first, s.length, part == Part::kFilter, part == Part::kStatistic});
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

Channels find_channels(const OnnxModel& model) { return ChannelFlow(model).find(); }

}  // namespace evn_train
