// A model of an old opset of ai.onnx becomes one of a newer.
#pragma once

#include "base/ledger.h"
#include "core/graph.h"

namespace evn {

inline constexpr std::int64_t kOldestRaised = 7;  // before it, element-wise operators broadcast in another way
inline constexpr std::int64_t kNewestRaised = 21;

// What the model imports of ai.onnx; 0: nothing.
std::int64_t opset_of(const Model& model);

// Writes the graph's nodes as `version` (at most kNewestRaised) has them: attributes that became inputs, axes that count from
// another end, operators that have another name; a model that imports `version` or a newer one stays as it is, but for nodes of
// functions that import something else: all nodes have one version then, and all domains are imported. Bodies are flat
// (graph/subgraphs.h). The graph has been validated and its types inferred; it has to be loaded again before it runs. New constants
// are charged to `ledger`. Throws EVN_ERROR_UNSUPPORTED: the model is older than kOldestRaised; a node, which is named, cannot be
// said in the new version.
void raise_opset(Model& model, std::int64_t version, const LedgerPtr& ledger);

}  // namespace evn
