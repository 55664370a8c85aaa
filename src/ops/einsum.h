// Einsum: what the equation says of the inputs' axes and strides.
#pragma once

#include <algorithm>

#include "ops/infra/walk.h"

namespace evn {

constexpr int kEinsumLetters = 52;
constexpr int kEinsumLabels = kEinsumLetters + kMaxRank;  // letters, then the axes of "..." counted from its right end

// The labels of one term's axes. `dots` is where "..." stood, or -1.
struct EinsumTerm {
  int count = 0;
  int label[kMaxRank] = {};
  int dots = -1;

  bool has(int l) const { return std::find(label, label + count, l) != label + count; }
};

// An equation with the axes of "..." written out, and the sizes of its labels (-1: not known, -2: not used).
struct EinsumEquation {
  static constexpr int kMaxInputs = 8;
  int inputs = 0;
  EinsumTerm term[kMaxInputs];
  EinsumTerm result;
  bool has_result = false;
  std::int64_t size[kEinsumLabels];
};

// Of a node whose inputs' ranks are known. Throws EVN_ERROR_INVALID_MODEL.
EinsumEquation einsum_equation(const Node& node, std::span<const TensorDesc> inputs);

// y[kept] = sum over `summed` of the product of the operands' elements, which lie where their strides say.
struct Contraction {
  static constexpr int kMaxInputs = EinsumEquation::kMaxInputs;
  Shape kept, summed;
  int operands = 0;
  Strides kept_steps[kMaxInputs], summed_steps[kMaxInputs];
};

// The contraction of a node whose shapes are known. Throws EVN_ERROR_LIMIT where more letters are summed over than a tensor has
// axes.
Contraction einsum_contraction(const Node& node, std::span<const TensorDesc> inputs);

}  // namespace evn
