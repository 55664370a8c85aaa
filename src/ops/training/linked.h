// For programs that have the operators of training linked in: take_training_operators(linked_training_operators()).
#pragma once

#include "ops/infra/training_operators.h"

namespace evn {

const TrainingOperators& linked_training_operators();

}  // namespace evn
