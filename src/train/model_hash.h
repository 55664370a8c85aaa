// What ranks must have in common of a model.
#pragma once

#include <vector>

#include "base/hash.h"
#include "core/graph.h"

namespace evn_train {

// Nodes with their attributes, and constants, those of bodies included; without the bytes of the values of `learned`, which a rank
// takes from rank 0.
void add_model(evn::Hasher* hash, const evn::Graph& graph, const std::vector<bool>& learned);

}  // namespace evn_train
