// Which caches of a graph can be appended to in place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/lower/compile.h"

namespace evn {

// Per value: the node that makes it; -1: none.
std::vector<std::int32_t> makers_of(const Graph& graph);

// The axis on which `output`, an output of the graph, is `input` with something new behind it, so that a state can hold both in
// pages. -1: *why says why that is not known. `makers`: makers_of.
int append_axis(const CompiledGraph& c, std::span<const std::int32_t> makers, ValueId output, ValueId input, const char** why);

}  // namespace evn
