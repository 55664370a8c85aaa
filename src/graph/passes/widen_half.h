// Models of float16 and bfloat16. Runs at the end of validation: inference refuses what it widens.
#pragma once

#include "core/graph.h"
#include "core/type_conflict.h"

namespace evn {

// When a node has no implementation for the 16-bit floating type that it would get: all computed values and constants of these
// types become float32, behind Casts of the inputs and constants and before Casts to the outputs, which keep their types. Results
// are those of float32 arithmetic, rounded once. Only the dtypes of inputs
// and constants need to be known; the nodes are in order. Returns whether it
// changed anything.
bool widen_half(Graph& graph);

// Gives the outputs of nodes the dtypes that their operators give them, where the model declares others for values of its own;
// outputs of the graph keep what is declared. The nodes are in order. `conflicts` receives what was declared wrongly; nullable.
// Returns the dtypes of all values, as far as they are known.
std::vector<DType> settle_dtypes(Graph& graph, TypeConflicts* conflicts);

}  // namespace evn
