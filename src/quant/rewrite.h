// A float32 graph with the nodes in it that ONNX has for 8 bits.
#pragma once

#include "base/ledger.h"
#include "quant/range.h"
#include "quant/scheme.h"
#include "quant/smooth.h"

namespace evn {

struct RewriteOptions {
  bool per_tensor = false;                      // one scale for a weight instead of one for each of its columns or output channels
  DType activation = DType::kUint8;             // or kInt8
  LedgerPtr ledger;                             // new constants are charged here
  std::map<ValueId, Smoothing> smoothing = {};  // static: inputs of products
};

// QuantizeLinear and DequantizeLinear around what the scheme has quantized (needs opset 13). `params`: by group of the
// scheme. Weights become int8, symmetric, each output channel with a scale of its own; biases int32 with the scale of input
// and weight. A bias that does not fit stays float32, and the scheme then says so.
void rewrite_static(Graph* graph, QuantScheme* scheme, std::span<const QuantParams> params, const RewriteOptions& options);

// DynamicQuantizeLinear, MatMulInteger or ConvInteger, and the scales (needs opset 11) in the place of MatMul, Gemm and Conv;
// com.microsoft's DynamicQuantizeLSTM in that of LSTM.
void rewrite_dynamic(Graph* graph, QuantScheme* scheme, const RewriteOptions& options);

}  // namespace evn
