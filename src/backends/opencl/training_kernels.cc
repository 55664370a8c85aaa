#include "backends/opencl/training_kernels.h"

namespace evn {

std::span<const KernelFamily* const> opencl_kernel_families();

namespace {

constinit TrainingKernels g_kernels;
std::span<const OpenClSource> g_sources;  // written before the kernels are there

}  // namespace

void open_opencl_training_kernels() {
  g_kernels.open({EVN_OPENCL_TRAINING_KERNELS_SYMBOL, kOpenClTrainingBuild, &g_sources}, opencl_kernel_families());
}

void take_opencl_training_kernels(std::span<const KernelFamily* const> families, std::span<const OpenClSource> sources) {
  if (g_sources.empty()) g_sources = sources;
  g_kernels.take(families, opencl_kernel_families());
}

void explain_opencl_training_kernels(const Node& node, std::string* reason) { g_kernels.explain(node, reason); }

std::span<const KernelFamily* const> opencl_kernels() { return g_kernels.kernels(opencl_kernel_families()); }

// The kernels say whether the sources have been written.
std::span<const OpenClSource> opencl_training_sources() {
  return g_kernels.has_module() ? g_sources : std::span<const OpenClSource>();
}

}  // namespace evn
