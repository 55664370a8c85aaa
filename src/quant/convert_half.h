// A float32 graph in float16, or with its weights in bfloat16.
#pragma once

#include "quant/scheme.h"

namespace evn {

// float16: products (MatMul, Gemm, Conv, ConvTranspose) and embeddings compute in float16, and so does what follows them of
// operators that add, move or bend elements; Casts stand in front of what stays float32 (softmax, normalizations, reductions, ...)
// and at the graph's inputs and outputs, whose types do not change. A node with a constant beyond 65504 stays float32 and says so.
// bfloat16: the same products' weights alone are bfloat16, and a Cast stands behind each: few engines compute in it on a CPU.
// `keep` as in SchemeOptions.
QuantScheme make_half_scheme(const Graph& graph, const std::vector<std::string>& keep, DType half);

// bfloat16 needs opset 13.
void convert_half(Graph* graph, const QuantScheme& scheme, DType half, const LedgerPtr& ledger);

}  // namespace evn
