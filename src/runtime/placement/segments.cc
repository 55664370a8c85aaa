#include "runtime/placement/segments.h"

#include <algorithm>

#include "base/error.h"
#include "graph/inline_if.h"

namespace evn {
namespace {

// The graph with each segment as one node. Its nodes are groups: segment s is group s, node i outside of segments is group
// (segments + i).
class SegmentGraph {
 public:
  SegmentGraph(const Graph& graph, std::span<const PlacedSegment> segments)
      : graph_(graph),
        segments_(segments),
        group_of_(graph.nodes.size()),
        maker_(graph.values.size(), -1),
        conditions_(region_conditions(graph)) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) group_of_[i] = static_cast<std::int32_t>(segments.size() + i);
    for (std::size_t s = 0; s < segments.size(); ++s) {
      for (const std::int32_t node : segments[s].nodes) group_of_[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(s);
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId v : graph.nodes[i].outputs) {
        if (v != kNoValue) maker_[static_cast<std::size_t>(v)] = group_of_[i];
      }
    }
    state_.assign(segments.size() + graph.nodes.size(), kNew);
  }

  // Depth-first topological sort, from the nodes in their order: what a group depends on, then its nodes.
  std::optional<std::vector<std::int32_t>> order() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!visit(i)) return std::nullopt;
    }
    return std::move(order_);
  }

  // A topological sort that begins with these nodes. The graph has no cycle.
  std::vector<std::int32_t> order_from(std::span<const std::int32_t> first) {
    for (const std::int32_t node : first) visit(static_cast<std::size_t>(node));
    return *order();
  }

 private:
  enum State : std::int32_t { kNew, kOpen, kDone };

  // False: there is a cycle.
  bool visit(std::size_t node) {
    if (state(group_of_[node]) == kNew) enter(group_of_[node]);
    while (!open_.empty()) {
      const std::int32_t group = open_.back();
      if (next_.size() == next_begin_.back()) {
        leave(group);
        continue;
      }
      const std::int32_t before = next_.back();
      next_.pop_back();
      if (state(before) == kOpen) return false;
      if (state(before) == kNew) enter(before);
    }
    return true;
  }

  std::int32_t& state(std::int32_t group) { return state_[static_cast<std::size_t>(group)]; }

  std::span<const std::int32_t> members(std::int32_t group, std::int32_t* single) const {
    const auto g = static_cast<std::size_t>(group);
    if (g < segments_.size()) return segments_[g].nodes;
    *single = static_cast<std::int32_t>(g - segments_.size());
    return {single, 1};
  }

  void depend(std::int32_t group, ValueId v) {
    const std::int32_t from = v == kNoValue ? -1 : maker_[static_cast<std::size_t>(v)];
    if (from >= 0 && from != group && state(from) != kDone) next_.push_back(from);
  }

  void enter(std::int32_t group) {
    state(group) = kOpen;
    open_.push_back(group);
    next_begin_.push_back(next_.size());
    std::int32_t single;
    for (const std::int32_t index : members(group, &single)) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
      for (const ValueId v : node.inputs) depend(group, v);
      for (std::int32_t r = node.region; r >= 0; r = graph_.regions[static_cast<std::size_t>(r)].parent) {
        depend(group, conditions_[static_cast<std::size_t>(r)]);
      }
    }
  }

  void leave(std::int32_t group) {
    state(group) = kDone;
    open_.pop_back();
    next_begin_.pop_back();
    std::int32_t single;
    for (const std::int32_t index : members(group, &single)) order_.push_back(index);
  }

  const Graph& graph_;
  std::span<const PlacedSegment> segments_;
  std::vector<std::int32_t> group_of_;     // per node
  std::vector<std::int32_t> maker_;        // per value: the group that makes it, or -1
  const std::vector<ValueId> conditions_;  // per region
  std::vector<std::int32_t> state_;        // per group
  std::vector<std::int32_t> open_;         // the stack: groups with a dependence that is not done
  std::vector<std::int32_t> next_;         // dependences of the open groups that have not been visited, one group after the other
  std::vector<std::size_t> next_begin_;    // per open group
  std::vector<std::int32_t> order_;
};

[[noreturn]] void refuse_claim(const Device& device, const char* why) {
  throw make_error(EVN_ERROR_INTERNAL, "the device claims a segment %s", why).with_device(device.name().c_str());
}

}  // namespace

std::optional<std::vector<std::int32_t>> contiguous_order(const Graph& graph, std::span<const PlacedSegment> segments) {
  return SegmentGraph(graph, segments).order();
}

std::vector<std::int32_t> queues_first_order(const Graph& graph, std::span<const PlacedSegment> segments,
                                             const std::vector<bool>& has_queue) {
  const std::vector<std::int32_t> order = *contiguous_order(graph, segments);
  const std::vector<ValueId> conditions = region_conditions(graph);
  std::vector<std::int32_t> after(graph.values.size(), 0);      // per value: how many nodes of the host come before it in a row
  std::vector<std::int32_t> host_nodes(graph.nodes.size(), 0);  // per node, as well
  for (const std::int32_t index : order) {
    const auto i = static_cast<std::size_t>(index);
    const Node& node = graph.nodes[i];
    const auto look = [&](ValueId v) {
      if (v != kNoValue) host_nodes[i] = std::max(host_nodes[i], after[static_cast<std::size_t>(v)]);
    };
    for (const ValueId v : node.inputs) look(v);
    for (std::int32_t r = node.region; r >= 0; r = graph.regions[static_cast<std::size_t>(r)].parent)
      look(conditions[static_cast<std::size_t>(r)]);
    for (const ValueId v : node.outputs) {
      if (v != kNoValue) after[static_cast<std::size_t>(v)] = host_nodes[i] + (has_queue[i] ? 0 : 1);
    }
  }
  std::vector<std::pair<std::int32_t, std::size_t>> queued;  // nodes on the host before a segment, and its place in the order
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto index = static_cast<std::size_t>(order[i]);
    if (has_queue[index]) queued.emplace_back(host_nodes[index], i);
  }
  std::ranges::sort(queued);
  std::vector<std::int32_t> first;
  for (const auto& [nodes, place] : queued) first.push_back(order[place]);
  return SegmentGraph(graph, segments).order_from(first);
}

std::vector<std::size_t> segments_in_cycles(const Graph& graph, std::span<const PlacedSegment> segments) {
  std::vector<std::size_t> cyclic;
  if (contiguous_order(graph, segments)) return cyclic;
  std::vector<PlacedSegment> kept;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    kept.push_back(segments[s]);
    if (contiguous_order(graph, kept)) continue;
    kept.pop_back();
    cyclic.push_back(s);
  }
  return cyclic;
}

std::vector<PlacedSegment> claim_segments(Device& device, std::span<const OpDesc> offered, std::span<const std::int32_t> nodes) {
  std::vector<PlacedSegment> result;
  std::vector<bool> taken(offered.size(), false);
  for (const Segment& segment : device.claim(offered).segments) {
    if (segment.nodes.size() < 2) continue;
    const Kernel* const kernel = segment.kernel;
    if (kernel == nullptr || !kernel->takes_empty || kernel->prepack_bytes != nullptr || kernel->layouts != nullptr) {
      refuse_claim(device, "whose kernel is missing, packs constants, asks for layouts or takes no empty inputs");
    }
    PlacedSegment placed{&device, kernel, {}};
    for (const int i : segment.nodes) {
      if (i < 0 || static_cast<std::size_t>(i) >= offered.size()) refuse_claim(device, "with a node that it was not offered");
      if (taken[static_cast<std::size_t>(i)]) refuse_claim(device, "with a node that it claims twice");
      taken[static_cast<std::size_t>(i)] = true;
      placed.nodes.push_back(nodes[static_cast<std::size_t>(i)]);
    }
    std::ranges::sort(placed.nodes);
    result.push_back(std::move(placed));
  }
  return result;
}

}  // namespace evn
