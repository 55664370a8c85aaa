// Order of the nodes of a session, and the inputs and outputs of its segments.
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// Gives the session an order of the nodes in which those of each segment are contiguous, and in which devices with a queue begin
// early.
void order_nodes(CompiledGraph& c);

// Finds the inputs and outputs of each segment. The readers of values must be known.
void compile_segments(CompiledGraph& c);

}  // namespace evn
