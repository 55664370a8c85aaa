#include "runtime/lower/compile_segments.h"

#include <algorithm>

#include "base/cancel.h"
#include "runtime/placement/segments.h"

namespace evn {

void order_nodes(CompiledGraph& c) {
  std::vector<bool> has_queue, has_work;
  for (const NodePlacement& p : c.placement.nodes) {
    has_work.push_back(p.mode == NodeMode::kKernel || p.mode == NodeMode::kSegment);
    has_queue.push_back(has_work.back() && !p.device->traits().host_addressable);
  }
  if (c.placement.segments.empty() &&
      (has_queue == has_work || std::find(has_queue.begin(), has_queue.end(), true) == has_queue.end()))
    return;
  const std::vector<std::int32_t> order = queues_first_order(c.graph(), c.placement.segments, has_queue);
  if (std::is_sorted(order.begin(), order.end())) return;
  c.ordered = std::make_unique<Graph>(c.graph());
  std::vector<Node> nodes;
  std::vector<NodePlacement> placed;
  std::vector<std::int32_t> index_of(order.size());
  for (const std::int32_t from : order) {
    index_of[static_cast<std::size_t>(from)] = static_cast<std::int32_t>(nodes.size());
    nodes.push_back(std::move(c.ordered->nodes[static_cast<std::size_t>(from)]));
    placed.push_back(std::move(c.placement.nodes[static_cast<std::size_t>(from)]));
  }
  c.ordered->nodes = std::move(nodes);
  for (PlacedSegment& s : c.placement.segments) {
    for (std::int32_t& node : s.nodes) node = index_of[static_cast<std::size_t>(node)];
  }
  c.placement.nodes = std::move(placed);
  c.source = c.ordered.get();
}

void compile_segments(CompiledGraph& c) {
  const Graph& graph = c.graph();
  std::vector<std::int32_t> seen_in(graph.values.size(),
                                    -1);  // the last segment that makes the value, or has it as an input already
  for (std::size_t number = 0; number < c.placement.segments.size(); ++number) {
    cancellation_point(kNodeWork);
    const auto here = static_cast<std::int32_t>(number);
    const std::vector<std::int32_t>& nodes = c.placement.segments[number].nodes;
    CompiledSegment& s = c.segments.emplace_back();
    s.first = nodes[0];
    s.others.assign(nodes.begin() + 1, nodes.end());
    const auto is_inside = [&](std::int32_t node) {
      return c.nodes[static_cast<std::size_t>(node)].segment == static_cast<std::int32_t>(number);
    };
    std::size_t args = 0;
    for (const std::int32_t index : nodes) {
      const Node& node = graph.nodes[static_cast<std::size_t>(index)];
      args += node.inputs.size() + node.outputs.size();
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId v = node.inputs[k];
        const bool by_value = node.op->reads_value(k);
        if (v == kNoValue || by_value || seen_in[static_cast<std::size_t>(v)] == here) continue;
        seen_in[static_cast<std::size_t>(v)] = here;
        s.values.inputs.push_back(v);
        s.constants.push_back(graph.values[static_cast<std::size_t>(v)].constant);
      }
      for (const ValueId v : node.outputs) {
        if (v == kNoValue) continue;
        seen_in[static_cast<std::size_t>(v)] = here;
        const auto begin = c.readers.begin() + c.reader_begin[static_cast<std::size_t>(v)];
        const auto end = c.readers.begin() + c.reader_begin[static_cast<std::size_t>(v) + 1];
        if (c.last_user[static_cast<std::size_t>(v)] == INT32_MAX || !std::all_of(begin, end, is_inside))
          s.values.outputs.push_back(v);
      }
    }
    s.packed.resize(s.values.inputs.size());
    args += s.values.inputs.size() + s.values.outputs.size();
    c.most_step_args = std::max(c.most_step_args, args);
  }
}

}  // namespace evn
