// Segments of several nodes that devices claim: which of the claims hold together with the rules, and with each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/graph.h"
#include "device/device.h"

namespace evn {

// Nodes that a device runs as one step.
struct PlacedSegment {
  Device* device = nullptr;
  const Kernel* kernel = nullptr;
  std::vector<std::int32_t> nodes;  // ascending
};

// A topological order in which the nodes of each segment are contiguous; the nodes' own order where it is one already. None where
// the graph has a cycle once each segment is one node.
std::optional<std::vector<std::int32_t>> contiguous_order(const Graph& graph, std::span<const PlacedSegment> segments);

// Such an order, of an acyclic graph, in which devices with a queue begin early: first come the nodes that they run and what those
// need, those before which the host has the fewest nodes to run in a row first; then what the host runs for itself. So a device
// works on one branch while the host works on another. `has_queue`: per node, whether such a device runs it.
std::vector<std::int32_t> queues_first_order(const Graph& graph, std::span<const PlacedSegment> segments,
                                             const std::vector<bool>& has_queue);

// Indices of the segments to drop so that the graph stays acyclic: each would close a cycle with those that are kept before it.
std::vector<std::size_t> segments_in_cycles(const Graph& graph, std::span<const PlacedSegment> segments);

// Asks the device for its segments of several nodes among those that `offered` describes; `nodes`: their indices, ascending. Throws
// EVN_ERROR_INTERNAL where a segment has a node that was not offered, or twice, or a kernel that segments may not have (device.h).
std::vector<PlacedSegment> claim_segments(Device& device, std::span<const OpDesc> offered, std::span<const std::int32_t> nodes);

}  // namespace evn
