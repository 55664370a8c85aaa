#include "ops/infra/training_operators.h"

#include <algorithm>
#include <atomic>

#include "ops/infra/training_module.h"

namespace evn {
namespace {

constinit const TrainingOperators kNone;
constinit std::atomic<const TrainingOperators*> g_operators{nullptr};

}  // namespace

const TrainingOperators& training_operators() {
  if (const auto* have = g_operators.load(std::memory_order_acquire)) return *have;
  const auto open = reinterpret_cast<TrainingOperatorsFunction>(training_module_symbol(EVN_TRAINING_OPERATORS_SYMBOL));
  const TrainingOperators* const found = open != nullptr ? open(kOperatorsBuild) : nullptr;
  g_operators.store(found != nullptr ? found : &kNone, std::memory_order_release);
  return found != nullptr ? *found : kNone;
}

const TrainingOperators* training_operators_of(const OpDef& op) {
  const TrainingOperators* const have = g_operators.load(std::memory_order_acquire);
  if (have == nullptr) return nullptr;
  const auto has_it = [&](const OpFamily* f) { return &op >= f->ops.data() && &op < f->ops.data() + f->ops.size(); };
  return std::any_of(have->families.begin(), have->families.end(), has_it) ? have : nullptr;
}

void take_training_operators(const TrainingOperators& operators) { g_operators.store(&operators, std::memory_order_release); }

}  // namespace evn
