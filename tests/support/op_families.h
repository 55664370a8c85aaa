// All rows of operators: those of the library, and those of training, which tests have linked in.
#pragma once

#include <vector>

#include "ops/infra/training_operators.h"

namespace evn::test {

inline std::vector<const OpFamily*> all_op_families() {
  const auto of_library = op_families();
  std::vector<const OpFamily*> all(of_library.begin(), of_library.end());
  const auto of_training = training_operators().families;
  all.insert(all.end(), of_training.begin(), of_training.end());
  return all;
}

}  // namespace evn::test
