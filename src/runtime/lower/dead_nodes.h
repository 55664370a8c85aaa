// Nodes that a run has no use for, as it is asked for some of the graph's outputs alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/lower/compile.h"

namespace evn {

// Per node: whether nothing that is wanted depends on it. `skipped`: per output of the graph, 1: it is not wanted. Nodes that run
// as one step are dead together.
std::vector<bool> find_dead_nodes(const CompiledGraph& graph, std::span<const std::uint8_t> skipped);

}  // namespace evn
