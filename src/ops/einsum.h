// Einsum: what the equation says of the inputs' strides.
#pragma once

#include "ops/infra/walk.h"

namespace evn {

// y[kept] = sum over `summed` of the product of the operands' elements, which lie where their strides say.
struct Contraction {
  static constexpr int kMaxInputs = 8;
  Shape kept, summed;
  int operands = 0;
  Strides kept_steps[kMaxInputs], summed_steps[kMaxInputs];
};

// The contraction of a node whose shapes are known. Throws EVN_ERROR_LIMIT where more letters are summed over than a tensor has
// axes.
Contraction einsum_contraction(const Node& node, std::span<const TensorDesc> inputs);

}  // namespace evn
