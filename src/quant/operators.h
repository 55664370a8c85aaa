// Float operators between DequantizeLinear and QuantizeLinear become the operators that take and give bytes (ONNX's QOperator
// form).
#pragma once

#include "base/ledger.h"
#include "core/graph.h"

namespace evn {

// Rewrites a graph that rewrite_static has made with QLinearConv, QLinearMatMul, and com.microsoft's QGemm, QLinearAdd, QLinearMul,
// QLinearGlobalAveragePool, QLinearAveragePool, QLinearSigmoid and QLinearLeakyRelu; what hands elements on does so with bytes. A
// Relu or Clip that saturation does anyway goes. What has no such operator stays between the two. Whether com.microsoft is needed.
bool use_byte_operators(Graph* graph, const LedgerPtr& ledger);

}  // namespace evn
