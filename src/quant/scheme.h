// Which nodes of a float32 graph are to compute with 8 bits, and which of its values therefore get a scale. Decided from
// the graph alone; numbers come from calibration later.
//   Products (Conv, Gemm, MatMul) with a constant float32 weight are the core. What a Conv makes is quantized too, whoever reads
//   it. A node between them (Add and Mul of two values, pools) joins when all its float32 operands are quantized anyway and
//   somebody quantized reads it. Nodes that only hand elements on (MaxPool, Reshape, Concat, ...) share one scale with what they
//   read. Element-wise nodes that compute a function of one quantized value (Sigmoid; hard-swish in four nodes) stay as they are
//   between the value in 8 bits and its function's in 8 bits: an engine may make one table of 256 elements of them. Rows that a
//   Gather takes from a large constant matrix (embeddings) are float32 again behind it. A Relu or Clip that alone reads a product
//   or a node between is computed with it: the value behind it is the one that is quantized.
#pragma once

#include <string>
#include <vector>

#include "core/graph.h"
#include "graph/attributes.h"

namespace evn {

enum class QuantRole : std::uint8_t {
  kFloat,     // stays as it is
  kProduct,   // weight in 8 bits
  kBetween,   // computes with 8 bits
  kHandsOn,   // moves 8 bits
  kFunction,  // element-wise, of one quantized value
  kBounds,    // Relu or Clip, computed with the node before it
  kTable,     // a Gather of a constant matrix's rows, kept in 8 bits with a scale for each row
};

struct QuantNode {
  QuantRole role = QuantRole::kFloat;
  int weight = -1;                // input number of the weight, of a product
  int bias = -1;                  // of a constant bias; -1: none
  int weight_axis = 0;            // along which a weight has a scale each
  std::string reason;             // why it stays float32; "" where that needs no saying
  std::vector<float> bias_shift;  // by output channel, what is added to the bias of a Conv or Gemm; empty: nothing
};

struct QuantScheme {
  std::vector<QuantNode> nodes;     // by node
  std::vector<std::int32_t> group;  // by value: those with one number share scale and zero point; -1: not quantized
  std::int32_t group_count = 0;

  // Values that calibration has to look at: what a node hands on has been seen where it came from.
  std::vector<ValueId> observed(const Graph& graph) const;
};

struct SchemeOptions {
  std::vector<std::string> keep;  // nodes that stay float32: globs of names, or "type:Softmax"
  bool dynamic = false;           // only MatMul, Gemm and Conv, and nothing between them: scales are made in each run
  bool lstm = false;              // with `dynamic`: an LSTM is looked at, and
  bool contrib = false;           // quantized, as com.microsoft's DynamicQuantizeLSTM
  std::vector<std::string> refused =
      {};  // by node, why it stays float32 whatever `keep` says; "", or no element: nothing speaks against it
};

// Whether a node of this role makes its value from 8-bit numbers: then who reads the value reads what 8 bits leave of it.
inline bool makes_bytes(QuantRole role) {
  return role != QuantRole::kFloat && role != QuantRole::kFunction && role != QuantRole::kTable;
}

// The graph has been validated and its types inferred.
QuantScheme make_scheme(const Graph& graph, const SchemeOptions& options);

}  // namespace evn
