// The bodies of nodes that run a graph of their own many times (Loop, Scan, SequenceMap). A body keeps its own list of nodes; what
// it uses of the graphs around it becomes a further input of the node and of the body, so that nothing else needs to look inside.
// docs/decisions/0015.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/graph.h"

namespace evn {

// First 256 bytes of `path`, cut at a character. Names of nodes and values of a function, a body or a branch begin with the path to
// it: with this limit a long name of a hostile model is not repeated for each of them.
std::string bounded_path(std::string path);

// Whether the node has a graph among its attributes.
bool has_graph_attribute(const Node& node);

// A copy whose graphs among attributes are its own too: validation takes them apart.
Graph copy_with_bodies(const Graph& graph);

// Gives the node a body of its own: a copy of its graph attribute, whose nodes have names below the node's ("loop_3/body/add_1").
// `find` tells the value of a name in the graphs around it, or kNoValue. Throws EVN_ERROR_INVALID_MODEL with the node.
void take_body(Graph& graph, Node& node, const std::function<ValueId(std::string_view)>& find);

}  // namespace evn
