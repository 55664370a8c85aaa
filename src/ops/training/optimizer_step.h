// OptimizerStep and GradientNorm: names, attribute and input indices, and the numbers of a step (optimizer_step.cc says what they
// are). Both are of the domain of Merge: no model has them.
#pragma once

#include <cstddef>

#include "ops/op.h"

namespace evn {

inline constexpr const char kOptimizerStep[] = "OptimizerStep";
inline constexpr const char kGradientNorm[] = "GradientNorm";

struct OptimizerAttr {
  enum : int { kKind, kMomentum, kDampening, kBeta1, kBeta2, kEpsilon, kAlpha, kRateDecay, kNesterov, kCentered };
};
struct OptimizerInput {
  enum : int { kRates, kApply, kFirst };  // all parameters, all gradients, and all of each kept kind follow
};
struct GradientNormInput {
  enum : int { kScale, kFirst };  // all tensors follow
};
// The elements of input kRates.
struct OptimizerRate {
  enum : int { kLearning, kWeightDecay, kGradientScale, kClip, kStep, kCount = 8 };  // from kStep + 1 on reserved
};

enum class OptimizerKind : int { kSgd, kAdam, kAdamW, kAdagrad, kRmsprop };

// How many tensors are kept for each parameter: of sgd its momentum, of adam and adamw the averages of the gradient and of its
// square, of adagrad the sum of squares, of rmsprop the average of squares, the momentum and the average of the gradient. Throws
// EVN_ERROR_INVALID_MODEL on another kind.
std::size_t optimizer_kept(const Node& node);

// How many parameters there are among `inputs` inputs.
inline std::size_t optimizer_parameters(std::size_t kept, std::size_t inputs) {
  return (inputs - OptimizerInput::kFirst) / (2 + kept);
}

// The input that has what output `output` has after the step.
inline int optimizer_input_of(std::size_t kept, std::size_t inputs, int output) {
  const auto parameters = static_cast<int>(optimizer_parameters(kept, inputs));
  return OptimizerInput::kFirst + output + (output < parameters ? 0 : parameters);
}

// What the attributes say.
struct OptimizerRule {
  OptimizerKind kind;
  std::size_t kept;
  double momentum, dampening, beta1, beta2, epsilon, alpha, rate_decay;
  bool nesterov, centered;
};
// Throws EVN_ERROR_INVALID_MODEL on attributes that no optimizer has.
OptimizerRule optimizer_rule(const Node& node);

// What is the same for all elements of one step.
struct OptimizerNumbers {
  double rate;          // what the update is multiplied by, bias corrections included
  double decay;         // what is left of a parameter before it is updated (adamw)
  double weight_decay;  // times the parameter is added to its gradient
  double scale, clip;   // of gradients; a clip of 0 is none
  double second;        // what the root of the second average is multiplied by (adam and adamw)
  bool first;           // of all steps
};
OptimizerNumbers optimizer_numbers(const OptimizerRule& rule, const float* rates);

}  // namespace evn
