// Which of some devices runs each node, so that the predicted time is small: numbers in, numbers out. The nodes are in topological
// order; the host, device 0, has the inputs and wants the outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "runtime/objects/cost_table.h"

namespace evn {

struct PartitionProblem {
  struct Node {
    std::vector<std::int32_t> reads, makes;  // values
  };
  // What a device would do if it ran all nodes that it can. A step is of several nodes where they are fused; its time is that of
  // its first node in `ns`, the others have 0.
  struct Device {
    std::vector<double> ns;              // per node; HUGE_VAL: it cannot run it
    std::vector<std::int32_t> first_of;  // per node: the first node of its step
    CopyCost upload, download;           // of the host: 0
    std::vector<bool> in_place;          // per value: it is read where the host has it, by the latency alone; empty: none is
    double bytes_of(const PartitionProblem& p, std::size_t v) const {
      return !in_place.empty() && in_place[v] ? 0 : p.value_bytes[v];
    }
  };
  std::vector<Node> nodes;
  std::vector<Device> devices;
  std::vector<double> value_bytes;    // per value
  std::vector<std::int32_t> outputs;  // values that the host wants
};

// Per node: index of its device.
using Places = std::vector<std::int32_t>;

struct PartitionCost {
  double total = 0;          // one step after the other
  double end = 0;            // with each device, and its copies, at work as soon as what it needs is there
  std::vector<double> busy;  // per device; copies are the other device's than the host
  // Whose latency is `end`, or where devices are taken to work one after the other, `total`.
  double of(Objective objective, bool at_once) const;
};

// What the problem says of the places. A node that a device would run in the step of another one, which is elsewhere, takes the
// time of that step.
PartitionCost evaluate(const PartitionProblem& problem, const Places& places);

// The places of least total among those of contiguous segments of the order, by dynamic programming over nodes and devices. No cut
// goes through a step of either device. A value that is read behind a cut counts there as a copy, wherever it was made, so that the
// result is the best but for values that cross several cuts. Empty: no device runs some node.
Places best_segments(const PartitionProblem& problem);

// Moves cuts, and gives runs of nodes to other devices, as long as that makes the objective smaller. Looks at most at some
// 100,000,000 nodes.
Places improve(const PartitionProblem& problem, Places places, Objective objective, bool at_once = true);

}  // namespace evn
