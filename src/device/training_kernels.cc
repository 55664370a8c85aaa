#include "device/training_kernels.h"

#include <cstdio>
#include <mutex>
#include <string_view>

#include "ops/batch_norm.h"
#include "ops/infra/training_module.h"
#include "ops/merge.h"

namespace evn {

bool is_of_training(const Node& node) {
  const std::string_view op = node.op_type;
  if (node.domain == kInternalDomain) {
    return op.ends_with("Gradient") || op == "OptimizerStep" || op == "GradientNorm" || op == "SumTo" || op == "RepeatTo";
  }
  if (!node.domain.empty()) return false;
  if (op == "Dropout") return node.inputs.size() > 2 && node.inputs[2] != kNoValue;
  return op == "SoftmaxCrossEntropyLoss" || op == "NegativeLogLikelihoodLoss" ||
         (op == "BatchNormalization" && node.op != nullptr && batch_norm_trains(node));
}

const TrainingKernels::Families* TrainingKernels::joined(std::span<const KernelFamily* const> own,
                                                         std::span<const KernelFamily* const> families) {
  auto* all = new Families(own.begin(), own.end());
  all->insert(all->end(), families.begin(), families.end());
  return all;
}

const TrainingKernels::Families* TrainingKernels::find(const Module& module, std::span<const KernelFamily* const> own) {
  const auto open = reinterpret_cast<TrainingKernelsFunction>(training_module_symbol(module.symbol));
  std::size_t count = 0;
  const KernelFamily* const* const families = open == nullptr ? nullptr : open(module.build, module.shared, &count);
  if (families != nullptr) return joined(own, {families, count});
  const char* const why = why_no_training_module();
  std::snprintf(why_, sizeof why_, "%s", why != nullptr ? why : "libevener_train.so is of another version");
  return nullptr;
}

void TrainingKernels::open(const Module& module, std::span<const KernelFamily* const> own) {
  if (was_tried_.load(std::memory_order_acquire)) return;
  const std::lock_guard<Mutex> lock(mutex_);
  if (was_tried_.load(std::memory_order_relaxed)) return;
  all_.store(find(module, own), std::memory_order_release);
  was_tried_.store(true, std::memory_order_release);
}

void TrainingKernels::take(std::span<const KernelFamily* const> families, std::span<const KernelFamily* const> own) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (was_tried_.load(std::memory_order_relaxed)) return;
  all_.store(joined(own, families), std::memory_order_release);
  was_tried_.store(true, std::memory_order_release);
}

void TrainingKernels::explain(const Node& node, std::string* reason) const {
  const char* const why_not = why();
  if (why_not == nullptr || reason == nullptr || !is_of_training(node)) return;
  *reason += (reason->empty() ? "" : "; ") + std::string(why_not);
}

}  // namespace evn
