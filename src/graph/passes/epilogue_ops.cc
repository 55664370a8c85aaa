// See steps.h.
#include "graph/passes/epilogue_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "ops/clip.h"
#include "ops/conv.h"
#include "ops/merge.h"
#include "ops/op.h"
#include "ops/unary.h"

namespace evn {
namespace {

constexpr const char* kTakers[] = {
    "Conv",        "ConvTranspose", "Gemm",    "MatMul",    "BatchNormalization",
    "Add",         "Sub",           "Mul",     "Div",       "GlobalAveragePool",
    "AveragePool", "MaxPool",       "Relu",    "LeakyRelu", "Clip",
    "HardSigmoid", "HardSwish",     "Sigmoid", "Tanh",      "Swish",
};

// 1 / c, where multiplying by it stands for dividing by c: normal, so that nothing overflows or vanishes that did not before.
bool reciprocal(float c, float* out) {
  *out = 1.0f / c;
  return std::isnormal(c) && std::isnormal(*out);
}

bool append_arithmetic(const Graph& graph, const Node& node, ValueId x, Epilogue* chain) {
  if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
  const int side = node.inputs[0] == x ? 0 : 1;
  float c = 0;
  if (!scalar_constant(graph, node.inputs[1 - side], value_rank(graph.values[x]), &c)) return false;
  if (is_op(node, "Mul")) return chain->push({EpilogueOpKind::kScale, c, 0});
  if (is_op(node, "Add")) return chain->push({EpilogueOpKind::kOffset, c, 0});
  if (is_op(node, "Sub")) {
    if (side == 0) return chain->push({EpilogueOpKind::kOffset, -c, 0});
    return chain->push({EpilogueOpKind::kScale, -1.0f, 0}) && chain->push({EpilogueOpKind::kOffset, c, 0});
  }
  float inverse = 0;
  if (!is_op(node, "Div") || side != 0 || !reciprocal(c, &inverse)) return false;
  return chain->push({EpilogueOpKind::kScale, inverse, 0});
}

bool append_unary(const Graph& graph, const Node& node, ValueId x, Epilogue* chain) {
  if (node.inputs.empty() || node.inputs[0] != x) return false;
  float low = 0;
  float high = 0;
  if (is_op(node, "Relu")) return chain->push({EpilogueOpKind::kRelu, 0, 0});
  if (is_op(node, "Sigmoid")) return chain->push({EpilogueOpKind::kSigmoid, 0, 0});
  if (is_op(node, "Tanh")) return chain->push({EpilogueOpKind::kTanh, 0, 0});
  if (is_op(node, "Gelu")) {
    return chain->push(
        {attr_string(node, GeluAttr::kApproximate) == "tanh" ? EpilogueOpKind::kGeluTanh : EpilogueOpKind::kGelu, 0, 0});
  }
  if (is_op(node, "HardSwish")) return chain->push({EpilogueOpKind::kHardSwish, 1.0f / 6.0f, 0.5f});
  if (is_op(node, "Swish")) return chain->push({EpilogueOpKind::kSwish, attr_float(node, SwishAttr::kAlpha), 0});
  if (is_op(node, "LeakyRelu")) return chain->push({EpilogueOpKind::kLeakyRelu, attr_float(node, LeakyReluAttr::kAlpha), 0});
  if (is_op(node, "HardSigmoid")) {
    return chain->push(
        {EpilogueOpKind::kHardSigmoid, attr_float(node, HardSigmoidAttr::kAlpha), attr_float(node, HardSigmoidAttr::kBeta)});
  }
  return clip_bounds(graph, node, &low, &high) && chain->push({EpilogueOpKind::kClip, low, high});
}

}  // namespace

bool clip_bounds(const Graph& graph, const Node& node, float* low, float* high) {
  if (!is_op(node, "Clip")) return false;
  *low = -std::numeric_limits<float>::infinity();
  *high = std::numeric_limits<float>::infinity();
  if (!clip_bounds_are_inputs(node)) {
    *low = attr_float(node, ClipAttr::kMin);
    *high = attr_float(node, ClipAttr::kMax);
    return true;
  }
  const auto bound = [&](std::size_t input, float* out) {
    if (node.inputs.size() <= input || node.inputs[input] == kNoValue) return true;
    return scalar_constant(graph, node.inputs[input], kMaxRank, out);
  };
  return bound(1, low) && bound(2, high);
}

bool append_steps(const Graph& graph, const Node& node, ValueId x, Epilogue* chain) {
  if (x == kNoValue || node.outputs.empty() || node.outputs[0] == kNoValue || graph.values[x].dtype != DType::kFloat32 ||
      graph.values[node.outputs[0]].dtype != DType::kFloat32) {
    return false;
  }
  Epilogue longer = *chain;
  if (!append_unary(graph, node, x, &longer) && !append_arithmetic(graph, node, x, &longer)) return false;
  for (int i = 0; i < node.epilogue.count; ++i) {
    if (!longer.push(node.epilogue.ops[i])) return false;
  }
  *chain = longer;
  return true;
}

bool takes_epilogue(const Node& node) {
  if (node.domain == kInternalDomain) return node.op_type == kConvIntegerToFloat;
  if (!node.domain.empty()) return node.op_type == "MatMulNBits" || node.op_type == "MatMulIntegerToFloat";
  return std::any_of(std::begin(kTakers), std::end(kTakers), [&](const char* name) { return node.op_type == name; });
}

}  // namespace evn
