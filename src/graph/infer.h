// Shape and dtype inference over a whole graph while it is loaded, with dims that are not known yet.
#pragma once

#include "core/graph.h"

namespace evn {

// Sets dtype, has_shape and shape of every value that can be told. A contradiction with what the model declares is
// EVN_ERROR_INVALID_MODEL naming the node (declared dims that are known must fit; unknown ones are filled in).
void infer_graph(Graph& graph);

// The same for the body of a Loop, Scan or SequenceMap, whose inputs' types have been set.
void infer_body_graph(Graph& body);

// The same for one node, for planning: all input descs known. `values` holds known inputs' bytes (data null where not). Sets the
// descs of the outputs; where not even the rank can be told the shape is as InferContext::set_unknown_rank leaves it. Throws with
// the node's name.
void infer_node(const Node& node, std::span<const TensorDesc> inputs, std::span<const struct ConstTensor> values,
                std::span<TensorDesc> outputs);

}  // namespace evn
