#include "backends/cpu/training_kernels.h"

#include <cstdio>
#include <mutex>
#include <string_view>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/mutex.h"
#include "ops/batch_norm.h"
#include "ops/infra/training_module.h"
#include "ops/merge.h"

namespace evn {

std::span<const KernelFamily* const> cpu_kernel_families();

namespace {

struct TrainingKernels {
  Mutex mutex;
  std::atomic<bool> was_tried{false};
  std::atomic<const std::vector<const KernelFamily*>*> all{nullptr};  // stays for the life of the process
};
constinit TrainingKernels g_kernels;
char g_why[256];  // written once, before was_tried

const std::vector<const KernelFamily*>* with_others(std::span<const KernelFamily* const> families) {
  const std::span<const KernelFamily* const> own = cpu_kernel_families();
  static std::vector<const KernelFamily*> all;  // with the mutex held
  all.assign(own.begin(), own.end());
  all.insert(all.end(), families.begin(), families.end());
  return &all;
}

const std::vector<const KernelFamily*>* with_module() {
  const auto open = reinterpret_cast<TrainingKernelsFunction>(training_module_symbol(EVN_TRAINING_KERNELS_SYMBOL));
  std::size_t count = 0;
  const KernelFamily* const* const families = open == nullptr ? nullptr : open(kTrainingBuild, &ChosenIsa::kept(), &count);
  if (families != nullptr) return with_others({families, count});
  const char* const why = why_no_training_module();
  std::snprintf(g_why, sizeof g_why, "%s", why != nullptr ? why : "libevener_train.so is of another version");
  return nullptr;
}

}  // namespace

bool is_of_training(const Node& node) {
  const std::string_view op = node.op_type;
  if (node.domain == kMergeDomain) return op.ends_with("Gradient") || op == "OptimizerStep" || op == "GradientNorm";
  if (!node.domain.empty()) return false;
  return op == "SoftmaxCrossEntropyLoss" || op == "NegativeLogLikelihoodLoss" ||
         (op == "BatchNormalization" && node.op != nullptr && batch_norm_trains(node));
}

void open_training_kernels() {
  if (g_kernels.was_tried.load(std::memory_order_acquire)) return;
  const std::lock_guard<Mutex> lock(g_kernels.mutex);
  if (g_kernels.was_tried.load(std::memory_order_relaxed)) return;
  g_kernels.all.store(with_module(), std::memory_order_release);
  g_kernels.was_tried.store(true, std::memory_order_release);
}

const char* why_no_training_kernels() {
  return g_kernels.was_tried.load(std::memory_order_acquire) && g_why[0] != '\0' ? g_why : nullptr;
}

void take_training_kernels(std::span<const KernelFamily* const> families) {
  const std::lock_guard<Mutex> lock(g_kernels.mutex);
  if (g_kernels.was_tried.load(std::memory_order_relaxed)) return;
  g_kernels.all.store(with_others(families), std::memory_order_release);
  g_kernels.was_tried.store(true, std::memory_order_release);
}

std::span<const KernelFamily* const> cpu_kernels() {
  if (const auto* all = g_kernels.all.load(std::memory_order_acquire)) return *all;
  return cpu_kernel_families();
}

}  // namespace evn
