// Puts the model's own functions where they are called, in the graph and in the bodies of its nodes, so that everything later sees
// operators only.
//
// Which definition counts where a function has the domain and name of an operator: ONNX leaves it to the runtime (onnx.proto,
// ModelProto.functions). Here the operator does, in the version that the caller imports, as in ONNX Runtime: the function of such a
// name is the exporter's fallback for engines that lack the operator. A call with an overload always means the function.
//
// Nodes of a function keep the opset version that the function imports (Node::since_version), even where the model's is another.
// An attribute that refers to the function's takes what the call gives, else the function's default, else it is left out, as
// ONNX Runtime does; a call may give attributes that nobody refers to.
#pragma once

#include "base/limits.h"
#include "core/graph.h"
#include "ops/custom.h"

namespace evn {

// Binds Gradients first (graph/gradient.h): their names mean values of the function.
// Nodes of the graph must have unique names; those of a function become "call/inner". Empties `model.functions`. Throws
// EVN_ERROR_INVALID_MODEL with the node or the function (recursion included), and EVN_ERROR_LIMIT when the functions would
// become more than limits.nodes nodes (a call counts as one), limits.model_bytes of attributes, or nest deeper than limits.nesting.
void expand_functions(Model& model, const Limits& limits, const OperatorRegistry* custom = nullptr);

}  // namespace evn
