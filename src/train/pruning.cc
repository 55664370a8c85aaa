#include "train/pruning.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/number_text.h"
#include "graph/node_writer.h"
#include "graph/unique_names.h"
#include "train/library.h"

namespace evn_train {
namespace {

constexpr std::int64_t kFew = 32;  // channels, from which kernels like multiples of kRound
constexpr std::int64_t kRound = 8;

// Part of a tensor that a unit of a group has: `outer` runs of `run` elements, `pitch` apart, from `first` on.
struct Runs {
  std::size_t outer = 1, pitch = 0, run = 0, first = 0;
};

Runs runs_of(const ChannelUse& use, const std::vector<std::int64_t>& dims, std::int64_t units, std::size_t unit) {
  const auto dim = [&](std::size_t i) { return static_cast<std::size_t>(dims[i]); };
  std::size_t inner = 1;
  for (std::size_t i = use.axis + 1; i < dims.size(); ++i) inner *= dim(i);
  Runs r;
  for (std::size_t i = 0; i < use.axis; ++i) r.outer *= dim(i);
  const auto length = static_cast<std::size_t>(use.length / units);
  r.pitch = dim(use.axis) * inner;
  r.run = length * inner;
  r.first = (static_cast<std::size_t>(use.first) + unit * length) * inner;
  return r;
}

double sum_of_squares(const float* data, const Runs& r) {
  double sum = 0;
  for (std::size_t o = 0; o < r.outer; ++o) {
    const float* const run = data + o * r.pitch + r.first;
    for (std::size_t i = 0; i < r.run; ++i) sum += static_cast<double>(run[i]) * static_cast<double>(run[i]);
  }
  return sum;
}

// All that units which are not kept have of a tensor.
void zero(const Tensor& tensor, const ChannelUse& use, const std::vector<std::int64_t>& dims, const std::vector<float>& kept) {
  const Mapped mapped(tensor);
  auto* const data = static_cast<float*>(mapped.data());
  for (std::size_t u = 0; u < kept.size(); ++u) {
    if (kept[u] != 0) continue;
    const Runs r = runs_of(use, dims, static_cast<std::int64_t>(kept.size()), u);
    for (std::size_t o = 0; o < r.outer; ++o) std::fill_n(data + o * r.pitch + r.first, r.run, 0.0f);
  }
}

// At least one of `units` stays.
std::int64_t removed_of(double share, const ChannelGroup& group) {
  const auto units = static_cast<double>(group.units);
  if (group.units == group.channels && group.units >= kFew) {
    const auto kept = static_cast<std::int64_t>(std::floor((units * (1 - share) + kRound / 2) / kRound)) * kRound;
    return group.units - std::clamp<std::int64_t>(kept, kRound, group.units);
  }
  return std::min<std::int64_t>(group.units - 1, static_cast<std::int64_t>(std::floor(units * share + 1e-9)));
}

// The constant without what is not kept along an axis.
evn::WeightPtr gathered(const evn::Weight& from, int axis, const std::vector<bool>& kept, const evn::LedgerPtr& ledger) {
  evn::TensorDesc desc = from.desc;
  desc.shape[axis] = std::count(kept.begin(), kept.end(), true);
  void* bytes = nullptr;
  const std::shared_ptr<evn::Weight> made = evn::make_unfilled_weight(desc, ledger, &bytes);
  const auto outer = static_cast<std::size_t>(from.desc.shape.elements(0, axis));
  const std::size_t size = from.size_bytes / outer / kept.size();
  const char* const data = from.as<char>();
  auto* to = static_cast<char*>(bytes);
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) to = std::copy_n(data + (o * kept.size() + i) * size, size, to);
    }
  }
  return made;
}

}  // namespace

std::int64_t Pruning::Group::removed() const { return std::count(kept.begin(), kept.end(), 0.0f); }

Pruning::Pruning(const TrainingGraphs& graphs, const evn_trainer_options& options)
    : graphs_(graphs), share_(options.prune_share), begin_(options.prune_begin), steps_(options.prune_steps) {
  found_ = find_channels(graphs.graph());
  find_places();
  for (ChannelGroup& channels : found_.groups) {
    refuse_what_cannot_learn(&channels);
    Group& group = groups_.emplace_back();
    group.channels = std::move(channels);
    if (group.channels.reason.empty()) group.removed_at_end = removed_of(share_, group.channels);
    group.kept.assign(static_cast<std::size_t>(group.channels.units), 1.0f);
  }
  found_.groups.clear();
  require_some();
  std::size_t most = 0;
  for (const Group& group : groups_) most = std::max(most, group.kept.size());
  scratch_.norms.resize(most);
  scratch_.squares.resize(most);
  scratch_.order.resize(most);
}

void Pruning::find_places() {
  places_.resize(graphs_.graph().values.size());
  for (std::size_t i = 0; i < graphs_.parameters().size(); ++i)
    places_[at(graphs_.parameters()[i].value)] = {Place::Kind::kParameter, i};
  for (std::size_t i = 0; i < graphs_.statistics().size(); ++i)
    places_[at(graphs_.statistics()[i].value)] = {Place::Kind::kStatistic, i};
}

// Statistics may stay: what is normalized by them is multiplied by zero.
void Pruning::refuse_what_cannot_learn(ChannelGroup* group) const {
  for (const ChannelUse& use : group->uses) {
    if (!group->reason.empty()) return;
    if (places_[at(use.value)].kind == Place::Kind::kNone && !use.is_statistic)
      group->reason = name_of(graphs_.graph(), use.value) + " does not learn";
  }
}

void Pruning::require_some() const {
  if (groups_.empty()) fail(EVN_ERROR_UNSUPPORTED, "prune_share: the model has no convolution with constant filters");
  const auto is_free = [](const Group& g) { return g.channels.reason.empty(); };
  if (std::none_of(groups_.begin(), groups_.end(), is_free)) {
    fail(EVN_ERROR_UNSUPPORTED, "prune_share: no channel can leave the model; those of \"%.100s\" stay: %.200s",
         groups_[0].channels.name.c_str(), groups_[0].channels.reason.c_str());
  }
  const auto loses = [](const Group& g) { return g.removed_at_end > 0; };
  if (std::none_of(groups_.begin(), groups_.end(), loses))
    fail(EVN_ERROR_INVALID_ARGUMENT, "prune_share is %s, which is less than one channel of each convolution",
         evn::shortest_text(share_).c_str());
}

void Pruning::apply(std::uint64_t steps, const PrunedTensors& tensors) {
  if (steps <= begin_) return;
  const double at = steps - begin_ < steps_ ? static_cast<double>(steps - begin_) / static_cast<double>(steps_) : 1;
  const double done = 1 - (1 - at) * (1 - at) * (1 - at);
  for (Group& group : groups_) {
    const auto removed = static_cast<std::int64_t>(std::floor(done * static_cast<double>(group.removed_at_end) + 1e-9));
    if (removed > group.removed()) choose(&group, removed, tensors);
  }
  for (const Group& group : groups_) clear(group, tensors);
}

// The units of the smallest norm, in which each convolution counts by its share of the whole norm of its filters.
void Pruning::choose(Group* group, std::int64_t removed, const PrunedTensors& tensors) {
  const std::size_t units = group->kept.size();
  const std::span<double> norms(scratch_.norms.data(), units), squares(scratch_.squares.data(), units);
  const std::span<std::size_t> order(scratch_.order.data(), units);
  std::fill(norms.begin(), norms.end(), 0.0);
  for (const ChannelUse& use : group->channels.uses) {
    if (!use.is_filter) continue;
    const Place& place = places_[at(use.value)];
    const Mapped mapped(tensors.values[place.index], EVN_MAP_READ);
    for (std::size_t u = 0; u < squares.size(); ++u) {
      const Runs runs = runs_of(use, graphs_.parameters()[place.index].dims, group->channels.units, u);
      squares[u] = sum_of_squares(static_cast<const float*>(mapped.data()), runs);
    }
    const double whole = std::accumulate(squares.begin(), squares.end(), 0.0);
    for (std::size_t u = 0; u < squares.size() && whole > 0; ++u) norms[u] += squares[u] / whole;
  }
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return group->kept[a] != group->kept[b] ? group->kept[a] < group->kept[b] : norms[a] < norms[b];
  });
  for (std::size_t i = 0; i < static_cast<std::size_t>(removed); ++i) group->kept[order[i]] = 0;
}

void Pruning::clear(const Group& group, const PrunedTensors& tensors) const {
  if (group.removed() == 0) return;
  for (const ChannelUse& use : group.channels.uses) {
    const Place& place = places_[at(use.value)];
    if (place.kind == Place::Kind::kNone) continue;
    const bool learns = place.kind == Place::Kind::kParameter;
    const std::vector<std::int64_t>& dims = (learns ? graphs_.parameters() : graphs_.statistics())[place.index].dims;
    zero((learns ? tensors.values : tensors.statistics)[place.index], use, dims, group.kept);
    if (!learns) continue;
    for (const std::vector<Tensor>& state : tensors.optimizer_state) zero(state[place.index], use, dims, group.kept);
  }
}

// ------------------------------------------------------------------------------------------- the model without them --

std::int64_t Pruning::length_removed(const std::vector<ChannelSpan>& spans) const {
  std::int64_t length = 0;
  for (const ChannelSpan& s : spans) {
    if (s.group != ChannelSpan::kNone) length += groups_[s.group].removed() * (s.length / groups_[s.group].channels.units);
  }
  return length;
}

void Pruning::shrink(Graph* graph, const evn::LedgerPtr& ledger) const {
  std::map<ValueId, std::vector<std::vector<bool>>> kept;  // by constant, axis, element
  for (const Group& group : groups_) {
    if (group.removed() == 0) continue;
    for (const ChannelUse& use : group.channels.uses) {
      const evn::Shape& shape = graph->values[at(use.value)].constant->desc.shape;
      auto& axes = kept[use.value];
      axes.resize(static_cast<std::size_t>(shape.rank()));
      if (axes[use.axis].empty()) axes[use.axis].assign(static_cast<std::size_t>(shape[static_cast<int>(use.axis)]), true);
      const std::int64_t length = use.length / group.channels.units;
      for (std::int64_t i = 0; i < use.length; ++i) {
        const bool stays = group.kept[static_cast<std::size_t>(i / length)] != 0;
        if (!stays) axes[use.axis][static_cast<std::size_t>(use.first + i)] = false;
      }
    }
  }
  for (const auto& [v, axes] : kept) {
    Value& value = graph->values[at(v)];
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (!axes[axis].empty()) value.constant = gathered(*value.constant, static_cast<int>(axis), axes[axis], ledger);
    }
    value.shape = value.constant->desc.shape;
  }
  change_numbers(graph, ledger);
}

// Numbers of nodes that count channels.
void Pruning::change_numbers(Graph* graph, const evn::LedgerPtr& ledger) const {
  for (const GroupedConvolution& g : found_.grouped) {
    const std::int64_t removed = length_removed(g.spans);
    if (removed == 0) continue;
    Node& node = graph->nodes[g.node];
    evn::set_attribute(node, evn::make_attribute("group", evn::int_attribute_of(node, "group", 1) - removed));
  }
  evn::UniqueNames taken;
  for (const Value& v : graph->values) taken.take(v.name);
  evn::NodeWriter writer(graph);
  for (const ReshapeNumber& r : found_.reshapes) {
    const std::int64_t removed = length_removed(r.spans);
    if (removed == 0) continue;
    ValueId& target = graph->nodes[r.node].inputs[1];
    const evn::WeightPtr old = graph->values[at(target)].constant;
    void* bytes = nullptr;
    const std::shared_ptr<evn::Weight> weight = evn::make_unfilled_weight(old->desc, ledger, &bytes);
    std::memcpy(bytes, old->bytes(), old->size_bytes);
    static_cast<std::int64_t*>(bytes)[r.position] -= removed;
    const Value& shared = graph->values[at(target)];  // others may read the same constant
    target = writer.add_constant(taken.make(shared.name + "_pruned"), weight, shared.origin);
  }
}

std::string Pruning::mask_name(std::size_t group) const {
  return "channels" + std::to_string(group) + "/" + groups_[group].channels.name;
}

void Pruning::add_to(Checkpoint* checkpoint) const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const Group& g = groups_[i];
    if (g.removed_at_end > 0)
      checkpoint->tensors.push_back({mask_name(i), {g.channels.units}, g.kept.data(), g.kept.size() * sizeof(float)});
  }
}

void Pruning::take_from(const std::map<std::string, const SavedTensor*>& saved) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Group& g = groups_[i];
    if (g.removed_at_end > 0) std::memcpy(g.kept.data(), saved.at(mask_name(i))->data, g.kept.size() * sizeof(float));
  }
}

void Pruning::describe(evn::JsonWriter* json) const {
  json->begin_object();
  json->key("share");
  json->number(evn::shortest_text(share_));
  json->field("begin", begin_);
  json->field("steps", steps_);
  json->key("groups");
  json->begin_array();
  for (const Group& g : groups_) {
    if (!g.channels.reason.empty()) continue;
    json->begin_object();
    json->field("name", std::string_view(g.channels.name));
    json->key("convolutions");
    json->begin_array();
    for (const std::string& name : g.channels.convolutions) json->value(std::string_view(name));
    json->end_array();
    json->field("channels", g.channels.channels);
    json->field("now", g.channels_of(g.channels.units - g.removed()));
    json->field("at_end", g.channels_of(g.channels.units - g.removed_at_end));
    json->end_object();
  }
  json->end_array();
  json->key("others");
  json->begin_array();
  for (const Group& g : groups_) {
    if (g.channels.reason.empty()) continue;
    json->begin_object();
    json->field("name", std::string_view(g.channels.name));
    json->field("channels", g.channels.channels);
    json->field("reason", std::string_view(g.channels.reason));
    json->end_object();
  }
  json->end_array();
  json->end_object();
}

std::string Pruning::describe_as_text() const {
  std::string text = "prunes " + evn::shortest_text(share_ * 100) + " % of channels from step " + std::to_string(begin_) +
                     " on, over " + std::to_string(steps_) + " steps:\n";
  for (const Group& g : groups_) {
    const ChannelGroup& c = g.channels;
    text += "  " + c.name;
    if (c.convolutions.size() > 1) text += " and " + std::to_string(c.convolutions.size() - 1) + " more";
    text += ": " + std::to_string(c.channels) + " channels";
    if (c.reason.empty()) {
      text += ", now " + std::to_string(g.channels_of(c.units - g.removed())) + ", at the end " +
              std::to_string(g.channels_of(c.units - g.removed_at_end)) + "\n";
    } else {
      text += " stay: " + c.reason + "\n";
    }
  }
  return text;
}

}  // namespace evn_train
