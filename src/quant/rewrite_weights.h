// A float32 graph with its weights alone in 8 or 4 bits; what is computed with them stays float32.
#pragma once

#include "quant/rewrite.h"

namespace evn {

struct WeightOptions {
  int bits = 8;             // of MatMul and Gemm: 8 or 4; others have 8
  std::int64_t block = 32;  // of k that share a scale: a power of two from 16 on
  bool contrib = false;     // MatMul and Gemm as com.microsoft's MatMulNBits; else by DequantizeLinear with blocks (opset 21)
  LedgerPtr ledger;
};

// MatMul and Gemm with a constant matrix of at least a block of rows, Conv with a constant weight, and Gather of rows of a constant
// matrix (embeddings). `keep` as in SchemeOptions.
QuantScheme make_weight_scheme(const Graph& graph, const std::vector<std::string>& keep, const WeightOptions& options);

// Conv and Gather need opset 13, the others what `contrib` says.
void rewrite_weights(Graph* graph, const QuantScheme& scheme, const WeightOptions& options);

}  // namespace evn
