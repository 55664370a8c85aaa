// Hash of the parts of a model that all ranks must have in common.
#pragma once

#include <vector>

#include "base/hash.h"
#include "core/graph.h"

namespace evn_train {

// Adds the nodes with their attributes, and the constants, to the hash, those of bodies included. The bytes of the values of
// `learned` are left out: each rank takes them from rank 0.
void add_model(evn::Hasher* hash, const evn::Graph& graph, const std::vector<bool>& learned);

}  // namespace evn_train
