// The operators that only gradients and optimizers have (ops/training), which are compiled into libevener_train.so: their rows,
// shape rules and reference kernels. The module is opened when the first of them is looked for. docs/decisions/0086-training.md
#pragma once

#include <cstdint>
#include <span>

#include "base/cancel.h"
#include "evener/evener.h"
#include "ops/op.h"

namespace evn {

struct TrainingOperators {
  std::span<const OpFamily* const> families = {};
  // op.reference(c) in that part, which has its own copy of what a thread has worked: `meter` is the caller's, and goes on in it.
  void (*run)(const OpDef& op, const ReferenceContext& c, WorkMeter& meter) = nullptr;
};

// Those of the module; no families: there is no module, or it does not fit.
const TrainingOperators& training_operators();
// Those, where this is one of them; else nullptr. Opens nothing.
const TrainingOperators* training_operators_of(const OpDef& op);
// Takes these in the place of the module's, for programs that have them linked in (tests). They live as long.
void take_training_operators(const TrainingOperators& operators);

// What the module exports under this name, where `build` is kOperatorsBuild; else it gives nullptr.
#define EVN_TRAINING_OPERATORS_SYMBOL "evn_training_operators"
using TrainingOperatorsFunction = const TrainingOperators* (*)(std::uint64_t build);

// Differs where the two were not compiled from the same headers.
inline constexpr std::uint64_t kOperatorsBuild = [] {
  std::uint64_t number = EVN_VERSION_NUMBER;
  for (const std::size_t size : {sizeof(OpDef), sizeof(AttributeSpec), sizeof(InferContext), sizeof(ReferenceContext), sizeof(Node),
                                 sizeof(TensorDesc), sizeof(ConstTensor), sizeof(WorkMeter)})
    number = number * 4099 + size;
  return number;
}();

}  // namespace evn
