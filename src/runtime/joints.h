// Joints of channels without copies: which values, where they lie channels last, are some channels of a wider one. What a Concat of
// channels joins is written into its output by whoever makes it; what Split and Slice cut out stays where it lies. Found once for a
// graph, from the kernels and layouts of its nodes; whether it comes so is decided by each plan (plan.cc), which may always copy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/kernel.h"

namespace evn {

// Where a value is to be written.
struct Place {
  ValueId whole = kNoValue;                // the wider value; kNoValue: by itself
  std::int64_t first = 0;                  // channel of the whole
  std::int64_t channels = 0, pitch = 0;    // the value's, and the whole's
};

// What is known of a node that a kernel of the CPU runs.
struct JointNode {
  std::span<const Layout> layouts;         // per input, ..., per output; empty: all plain, or no such node
  std::uint8_t pitched = 0;                // what Kernel::pitched said
  ValueId residual = kNoValue;             // operand of a sum that is computed with it
  std::int32_t computed_by = -1;           // this node is a sum that is computed with that one
};

// A Concat of some channels of a value, where these lie, and of a new value in the place of the others, when nobody reads these any more
// (the channels that a unit of ShuffleNet passes on, and those that it computes).
struct Over {
  ValueId value = kNoValue;
  std::int32_t last = 0;                   // the last node that reads it, or those of its channels that are written over
};

struct Joints {
  std::vector<Place> places;               // per value
  std::vector<Over> overs;                 // per whole
  std::vector<Place> cuts;                 // per value that stays where it is cut out: `whole` is the input of its Split or Slice
};

Joints find_joints(const Graph& graph, std::span<const JointNode> nodes);

}  // namespace evn
