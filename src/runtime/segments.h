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

// An order of the nodes in which each segment's stand one behind the other and every node behind what it depends on. The given
// one where that is such. None where there is none: the graph of segments has a cycle.
std::optional<std::vector<std::int32_t>> contiguous_order(const Graph& graph, std::span<const PlacedSegment> segments);

// Numbers of segments that would close a cycle with those before them that would not.
std::vector<std::size_t> segments_in_cycles(const Graph& graph, std::span<const PlacedSegment> segments);

// Asks the device for its segments of several nodes among those that `offered` describes; `nodes`: their numbers, ascending. Throws
// EVN_ERROR_INTERNAL where the claim makes no sense.
std::vector<PlacedSegment> claim_segments(Device& device, std::span<const OpDesc> offered, std::span<const std::int32_t> nodes);

}  // namespace evn
