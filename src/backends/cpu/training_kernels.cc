#include "backends/cpu/training_kernels.h"

#include "backends/cpu/isa.h"

namespace evn {

std::span<const KernelFamily* const> cpu_kernel_families();

namespace {

constinit TrainingKernels g_kernels;

}  // namespace

void open_training_kernels() {
  g_kernels.open({EVN_TRAINING_KERNELS_SYMBOL, kTrainingBuild, &ChosenIsa::kept()}, cpu_kernel_families());
}

void take_training_kernels(std::span<const KernelFamily* const> families) { g_kernels.take(families, cpu_kernel_families()); }

void explain_training_kernels(const Node& node, std::string* reason) { g_kernels.explain(node, reason); }

std::span<const KernelFamily* const> cpu_kernels() { return g_kernels.kernels(cpu_kernel_families()); }

}  // namespace evn
