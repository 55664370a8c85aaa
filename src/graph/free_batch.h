// A model that was exported for one size of the batch takes any.
#pragma once

#include "base/ledger.h"
#include "core/graph.h"

namespace evn {

// Rewrites the shapes of Reshape, Expand, ConstantOfShape and Tile in which an exporter has written the size of the batch: the
// number that dim 0 of the graph's inputs has. Constants that have that number as a dim, and the same parts along it, are repeated
// for the batch. Compares the shapes that the nodes have with that number and with another one. The graph has been validated and
// inferred, bodies are flat (graph/subgraphs.h), and it has to be loaded again before it runs. New constants are charged to
// `ledger`. Throws EVN_ERROR_UNSUPPORTED with the name of a node that takes no other size.
void free_batch(Graph& graph, const LedgerPtr& ledger);

}  // namespace evn
