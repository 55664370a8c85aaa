// Takes the bodies of If nodes apart: their nodes join the graph's own, each in the region of its branch, and a Merge per output
// hands on what the branch that was taken made. Everything later (inference, passes, placement, plans) then sees one flat list.
// Source: ONNX operator If, versions 1 to 25.
#pragma once

#include <string_view>

#include "core/graph.h"

namespace evn {

// Nodes must have unique names; those of bodies become "if_3/then/conv_1". Throws EVN_ERROR_INVALID_MODEL with the node.
// A FlexAttention becomes two products around its bodies (ops/flex_attention.h).
// Nodes with another graph among their attributes get a body of their own (graph/bodies.h).
void take_bodies(Graph& graph);

// Whether others are put in the operator's place while a model is loaded (If, FlexAttention, Gradient), which then has no row of
// its own.
bool is_taken_apart(std::string_view domain, std::string_view op_type);

// Per region, the value that decides whether it runs: true for the then-branch. kNoValue where no Merge is left.
std::vector<ValueId> region_conditions(const Graph& graph);

}  // namespace evn
