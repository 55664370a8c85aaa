// The activations that com.microsoft's fused operators name: Relu, Sigmoid, Tanh, LeakyRelu (alpha), HardSigmoid (alpha, beta) and
// Clip (least, largest), as steps of an epilogue.
#pragma once

#include "ops/op.h"

namespace evn {

// The parameters that the step takes stand in front; what is missing makes it invalid.
inline EpilogueOp fused_step(const std::string& name, std::span<const float> parameters) {
  struct Row {
    const char* name;
    EpilogueOpKind kind;
    std::size_t parameters;
  };
  constexpr Row kRows[] = {{"Relu", EpilogueOpKind::kRelu, 0},
                           {"Sigmoid", EpilogueOpKind::kSigmoid, 0},
                           {"Tanh", EpilogueOpKind::kTanh, 0},
                           {"LeakyRelu", EpilogueOpKind::kLeakyRelu, 1},
                           {"HardSigmoid", EpilogueOpKind::kHardSigmoid, 2},
                           {"Clip", EpilogueOpKind::kClip, 2}};
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    if (parameters.size() < row.parameters)
      fail(EVN_ERROR_INVALID_MODEL, "activation %s needs %zu parameters", row.name, row.parameters);
    return {row.kind, row.parameters > 0 ? parameters[0] : 0, row.parameters > 1 ? parameters[1] : 0};
  }
  fail(EVN_ERROR_UNSUPPORTED, "a fused operator with activation '%.64s'", name.c_str());
}

inline void apply_to_all(const EpilogueOp& step, const MutableTensor& y) {
  for (std::int64_t i = 0; i < y.desc.shape.elements(); ++i) {
    cancellation_point();
    y.as<float>()[i] = apply_epilogue_op(step, y.as<float>()[i]);
  }
}

}  // namespace evn
