// What libevener_train.so gives the table of operators.
#include "base/unwinder.h"
#include "ops/training/linked.h"

extern "C" __attribute__((visibility("default"))) const evn::TrainingOperators* evn_training_operators(std::uint64_t build) {
  evn::prepare_unwinder();
  return build == evn::kOperatorsBuild ? &evn::linked_training_operators() : nullptr;
}
