// Shape and dtype inference over a whole graph while it is loaded, with dims that are not known yet.
#pragma once

#include <vector>

#include "core/graph.h"
#include "core/type_conflict.h"

namespace evn {

// An output whose declared shape is not what the graph computes.
struct WrongShape {
  ValueId output;
  Shape declared;
};

// Sets dtype, has_shape and shape of every value that can be told. An output of another dtype than declared is
// EVN_ERROR_INVALID_MODEL naming it. Of its dims those are taken over that only the declaration knows; where the two contradict, as
// in what some exporters write, the computed shape stands and the output goes into `wrong` (nullable).
// `conflicts` (nullable) receives other values, of bodies as well, whose declared types are not those that nodes give them.
void infer_graph(Graph& graph, std::vector<WrongShape>* wrong = nullptr, TypeConflicts* conflicts = nullptr);

// Infers the body of a Loop, Scan or SequenceMap, whose inputs' types have been set.
void infer_body_graph(Graph& body);

// Infers one node, for planning: all input descs known. `values` holds known inputs' bytes (data null where not). Sets the
// descs of the outputs; where not even the rank can be told the shape is as InferContext::set_unknown_rank leaves it. Throws with
// the node's name.
void infer_node(const Node& node, std::span<const TensorDesc> inputs, std::span<const struct ConstTensor> values,
                std::span<TensorDesc> outputs);

}  // namespace evn
