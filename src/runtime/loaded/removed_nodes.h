// Nodes that the rewrites of a model have removed or made other operators: folded, fused, or without a use. Rules and patterns may
// name them.
#pragma once

#include <string>
#include <vector>

#include "core/graph.h"

namespace evn {

struct RemovedNode {
  std::string name;
  std::string op_type;
  std::string domain;  // "" is ai.onnx
};

// Names and operators of all nodes of a graph and its bodies.
std::vector<RemovedNode> list_nodes(const Graph& graph);

// Removes the nodes from the list that the graph or one of its bodies still has under the same name, with the same operator.
void drop_present(const Graph& graph, std::vector<RemovedNode>* nodes);

}  // namespace evn
