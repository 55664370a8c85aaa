// Graphs in a graph, for rewrites whose result is saved as ONNX (the quantizer's). flatten_bodies puts the nodes of bodies among
// the others as those of branches are (graph/inline_if), so that a rewrite looks at one list of nodes; with_subgraphs gives If,
// Loop, Scan and SequenceMap their graphs back. What lies between is not for running.
#pragma once

#include "core/graph.h"

namespace evn {

// Each body becomes a region. What goes into it is made by an Enter node there, which reads nothing; what comes out of it is read
// by the node that had the body, behind its own inputs (Node::captures of them). Values of the graphs around it are those
// themselves.
void flatten_bodies(Graph& graph);

void add_int(Node& node, const char* name, std::int64_t value);  // an attribute

bool is_enter(const Node& node);
// The region that is the node's body, or -1.
std::int32_t body_region(const Node& node);

// By value: the region of the node that makes it; -1 also where nobody does.
std::vector<std::int32_t> value_regions(const Graph& graph);
// Whether what is made in `outer` can be read in `inner`.
bool region_contains(const Graph& graph, std::int32_t outer, std::int32_t inner);

// A graph as ONNX has it, and as load_onnx gives it: not validated. Names are unique in all of its graphs, inputs and outputs keep
// theirs, constants lie in the innermost graph around their readers; with `weights_outside`, those of float32 that may be weights
// in the outermost. Throws EVN_ERROR_UNSUPPORTED naming a node that ONNX has not.
Graph with_subgraphs(const Graph& graph, bool weights_outside = false);

}  // namespace evn
