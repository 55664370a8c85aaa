#include "ops/training/linked.h"

#include "base/lent_meter.h"

namespace evn {

std::span<const OpFamily* const> training_op_families();

namespace {

void run(const OpDef& op, const ReferenceContext& c, WorkMeter& meter) {
  const LentMeter lent(meter);
  op.reference(c);
}

}  // namespace

const TrainingOperators& linked_training_operators() {
  static const TrainingOperators operators{training_op_families(), run};
  return operators;
}

}  // namespace evn
