#include "graph/default_reads.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/cancel.h"
#include "core/name_map.h"

namespace evn {
namespace {

using ReadSet = std::set<std::tuple<ValueId, std::string_view, std::size_t>>;

// Values of the graph that are defaults, by their names.
std::map<std::string_view, ValueId> find_defaults(const Model& model) {
  std::set<std::string_view> names;
  for (const InputDefault& d : model.defaults) names.insert(d.declared.name);
  std::map<std::string_view, ValueId> found;
  for (std::size_t v = 0; v < model.graph.values.size(); ++v) {
    cancellation_point(kNameWork);
    const Value& value = model.graph.values[v];
    if (value.constant != nullptr && names.contains(value.name)) found.emplace(value.name, static_cast<ValueId>(v));
  }
  return found;
}

template <typename F>
void for_each_read(const Graph& graph, F&& visit) {
  for (const Node& node : graph.nodes) {
    cancellation_point(kNodeWork);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId v = node.inputs[k];
      if (v != kNoValue && graph.values[static_cast<std::size_t>(v)].constant != nullptr) visit(v, node, k);
    }
  }
}

}  // namespace

std::vector<DefaultReads> reads_of_defaults(const Model& model) {
  std::vector<DefaultReads> all;
  if (model.defaults.empty()) return all;
  std::map<ValueId, std::size_t> place;
  for (const auto& [name, v] : find_defaults(model)) {
    place.emplace(v, all.size());
    all.push_back({std::string(name), model.graph.values[static_cast<std::size_t>(v)].constant->id, {}});
  }
  for_each_read(model.graph, [&](ValueId v, const Node& node, std::size_t input) {
    if (const auto it = place.find(v); it != place.end()) all[it->second].reads.push_back({node.name, input});
  });
  return all;
}

void drop_changed_defaults(std::span<const DefaultReads> before, Model* model) {
  if (model->defaults.empty()) return;
  const std::map<std::string_view, ValueId> values = find_defaults(*model);
  ReadSet reads;
  for_each_read(model->graph, [&](ValueId v, const Node& node, std::size_t input) { reads.emplace(v, node.name, input); });
  std::set<std::string_view> same;
  for (const DefaultReads& d : before) {
    const auto it = values.find(d.name);
    if (it == values.end() || model->graph.values[static_cast<std::size_t>(it->second)].constant->id != d.weight) continue;
    const auto is_there = [&](const DefaultReads::Read& r) { return reads.contains({it->second, r.node, r.input}); };
    if (std::all_of(d.reads.begin(), d.reads.end(), is_there)) same.insert(d.name);
  }
  std::erase_if(model->defaults, [&](const InputDefault& d) { return !same.contains(d.declared.name); });
}

}  // namespace evn
