// One product cut into parts that devices compute side by side: each makes some of the output's channels, columns or rows, from
// slices of the operands, and a Concat puts them together. Every element of the output is the sum that it was.
#pragma once

#include <span>
#include <vector>

#include "core/graph.h"

namespace evn {

// How a node can be cut.
struct CutRule {
  // What a part reads of an input: all of it, or of an axis so many elements for each unit.
  struct Input {
    int axis = -1;  // -1: all
    std::int64_t per_unit = 0;
  };
  const char* what = "";       // of the output are cut: "channels", "columns", "rows"
  int axis = 0;                // of output 0 that is cut; negative: from the end, where the rank is not known
  std::int64_t units = 0;      // parts have whole numbers of them
  std::int64_t per_unit = 1;   // elements of the output's axis
  std::vector<Input> inputs;   // as the node's
  const char* attribute = "";  // that says how many there are: "group", "N"; "": none does
};

// Throws EVN_ERROR_UNSUPPORTED, with the node's name, where it cannot be cut.
CutRule cut_rule(const Graph& graph, const Node& node);

// A node and the units of its parts, of which there are two at least and none is empty; they add up to the rule's.
struct NodeCut {
  std::int32_t node = -1;
  CutRule rule;
  std::vector<std::int64_t> units;
  std::int32_t first_part = 0;  // Node::part of the first one, with the others behind it
};

// Cuts nodes, in the order in which they stand. Constants are sliced without reading their bytes (core/weight.h).
void cut_nodes(Graph& graph, std::span<const NodeCut> cuts);

}  // namespace evn
