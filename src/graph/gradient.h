// Gradient (ai.onnx.preview.training, version 1) by reverse-mode differentiation, when a model is loaded: the node is replaced by
// ordinary nodes that compute the derivatives, so that everything later sees operators only. docs/decisions/0017.
//
// The rules of the operators are in graph/gradient/; rules.h says how to add one.
#pragma once

#include <functional>
#include <string_view>

#include "base/cancel.h"
#include "base/limits.h"
#include "core/graph.h"
#include "evener/evener.h"
#include "ops/op.h"

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
// EVN_ERROR_LIMIT when the graph would have more than limits.nodes nodes. Returns whether there was any. The rules are in
// libevener_train.so: EVN_ERROR_UNSUPPORTED where there is a Gradient and no such module.
bool expand_gradients(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete);

// The part of it that is in the module. `complete` is the library's.
void differentiate(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete);
using Differentiate = void (*)(Graph& graph, const Limits& limits, const std::function<void(Node&)>& complete, WorkMeter& meter);
// Takes this one in the place of the module's, for programs that have it linked in (tests).
void take_differentiation(Differentiate differentiate);

// What the module exports under this name: its Differentiate, where `build` is kGradientBuild; else nullptr. Constants that it
// makes are numbered by the library's counter (WeightIds).
#define EVN_DIFFERENTIATION_SYMBOL "evn_differentiation"
using DifferentiationFunction = Differentiate (*)(std::uint64_t build, std::atomic<std::uint64_t>& weight_ids);

// Differs where the two were not compiled from the same headers.
inline constexpr std::uint64_t kGradientBuild = [] {
  std::uint64_t number = EVN_VERSION_NUMBER;
  for (const std::size_t size : {sizeof(Graph), sizeof(Node), sizeof(Value), sizeof(Attribute), sizeof(Limits), sizeof(OpDef),
                                 sizeof(InferContext), sizeof(TensorDesc), sizeof(WorkMeter), sizeof(Weight)})
    number = number * 4099 + size;
  return number;
}();

}  // namespace evn
