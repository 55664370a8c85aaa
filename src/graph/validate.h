// Checks a graph as the model gives it and makes it ready for everything later: operators found, attributes resolved.
#pragma once

#include <cstdint>
#include <set>

#include "base/limits.h"
#include "core/graph.h"
#include "core/type_conflict.h"
#include "ops/custom.h"

namespace evn {

// Throws EVN_ERROR_INVALID_MODEL or EVN_ERROR_UNSUPPORTED naming the node. After it: each value has one producer (a graph input, a
// constant or one node output); nodes are in topological order; each node has `op`, `resolved` and a unique non-empty name; arities
// and attribute types hold; Constant nodes have become constant values. `custom`: operators beside the library's own; nullable.
// `conflicts` receives the Constant nodes whose values are declared as of another type; nullable.
// `literals` receives Weight::id of each value that was the output of a Constant node; nullable.
void validate_model(Model& model, const Limits& limits, const OperatorRegistry* custom = nullptr,
                    TypeConflicts* conflicts = nullptr, std::set<std::uint64_t>* literals = nullptr);

}  // namespace evn
