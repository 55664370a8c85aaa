#include "runtime/lower/dead_nodes.h"

namespace evn {
namespace {

// Goes from the graph's outputs to what they are made of.
class Wanted {
 public:
  explicit Wanted(const CompiledGraph& graph) : c_(graph), graph_(graph.graph()), values_(graph_.values.size()) {}

  void add(ValueId v) {
    if (v != kNoValue) values_[static_cast<std::size_t>(v)] = true;
  }

  bool makes_some(std::int32_t node) const {
    for (const ValueId v : graph_.nodes[static_cast<std::size_t>(node)].outputs) {
      if (v != kNoValue && values_[static_cast<std::size_t>(v)]) return true;
    }
    return false;
  }

  // What the node reads, and what says whether it runs.
  void add_needs(std::int32_t index) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
    for (const ValueId v : node.inputs) add(v);
    for (std::int32_t r = node.region; r >= 0; r = graph_.regions[static_cast<std::size_t>(r)].parent)
      add(c_.conditions[static_cast<std::size_t>(r)]);
  }

 private:
  const CompiledGraph& c_;
  const Graph& graph_;
  std::vector<bool> values_;
};

}  // namespace

std::vector<bool> find_dead_nodes(const CompiledGraph& graph, std::span<const std::uint8_t> skipped) {
  Wanted wanted(graph);
  const std::vector<ValueId>& outputs = graph.graph().outputs;
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (skipped[j] == 0) wanted.add(outputs[j]);
  }
  std::vector<bool> dead(graph.nodes.size(), true);
  for (auto last = static_cast<std::int32_t>(dead.size()) - 1; last >= 0;) {
    const std::int32_t segment = graph.nodes[static_cast<std::size_t>(last)].segment;
    const std::int32_t first = segment < 0 ? last : graph.segments[static_cast<std::size_t>(segment)].first;
    bool is_wanted = false;
    for (std::int32_t i = first; i <= last; ++i) is_wanted |= wanted.makes_some(i);
    for (std::int32_t i = first; is_wanted && i <= last; ++i) {
      dead[static_cast<std::size_t>(i)] = false;
      wanted.add_needs(i);
    }
    last = first - 1;
  }
  return dead;
}

}  // namespace evn
