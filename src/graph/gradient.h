// Gradient (ai.onnx.preview.training, version 1) by reverse-mode differentiation, when a model is loaded: the node is replaced by
// ordinary nodes that compute the derivatives, so that everything later sees operators only. docs/decisions/0017.
//
// The rules of the operators are in graph/gradient/; rules.h says how to add one.
#pragma once

#include <functional>
#include <string_view>

#include "base/limits.h"
#include "core/graph.h"

namespace evn {

bool is_gradient(std::string_view domain, std::string_view op_type);
bool is_bound_gradient(const Node& node);

// Makes the tensors that Gradients name in xs, zs and y further inputs of the nodes, in the graph, in bodies and in functions: from
// then on they are values like any others when functions are expanded and branches are inlined. What is bound already stays as it
// is. Throws EVN_ERROR_INVALID_MODEL with the node: a name that no tensor has, one that is there twice, a wrong number of inputs or
// outputs.
void bind_gradients(Model& model);

// Replaces bound Gradients by what computes them. The nodes of the graph are in order, have operators and resolved attributes
// (Gradients excepted) and one producer per value; so have those that are put in, for which `complete` finds operator and
// attributes. Throws, with the Gradient's name: EVN_ERROR_INVALID_MODEL for tensors of xs and zs that depend on one another, a y
// that no node computes or that is not floating point; EVN_ERROR_UNSUPPORTED for an operator between them that has no rule;
// EVN_ERROR_LIMIT when the graph would have more than limits.nodes nodes. Returns whether there was any. EVN_ERROR_UNSUPPORTED
// where there is a Gradient and the build has no training (EVN_TRAINING=OFF).
bool expand_gradients(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete);

}  // namespace evn
