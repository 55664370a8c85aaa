// What libevener_train.so gives the CPU device.
#include "backends/cpu/isa.h"
#include "backends/cpu/training_kernels.h"
#include "base/unwinder.h"

namespace evn {

std::span<const KernelFamily* const> training_kernel_families();

}  // namespace evn

extern "C" __attribute__((visibility("default"))) const evn::KernelFamily* const* evn_training_kernels(std::uint64_t build,
                                                                                                       void* isa,
                                                                                                       std::size_t* count) {
  if (build != evn::kTrainingBuild) return nullptr;
  evn::prepare_unwinder();
  evn::ChosenIsa::keep_at(*static_cast<std::atomic<int>*>(isa));
  const std::span<const evn::KernelFamily* const> families = evn::training_kernel_families();
  *count = families.size();
  return families.data();
}
