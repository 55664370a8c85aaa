// What libevener_train.so gives OpenCL devices.
#include "backends/opencl/training_kernels.h"
#include "base/unwinder.h"

namespace evn {

std::span<const KernelFamily* const> opencl_training_kernel_families();
std::span<const OpenClSource> opencl_training_embedded();

}  // namespace evn

extern "C" __attribute__((visibility("default"))) const evn::KernelFamily* const* evn_opencl_training_kernels(std::uint64_t build,
                                                                                                              void* sources,
                                                                                                              std::size_t* count) {
  if (build != evn::kOpenClTrainingBuild) return nullptr;
  evn::prepare_unwinder();
  *static_cast<std::span<const evn::OpenClSource>*>(sources) = evn::opencl_training_embedded();
  const std::span<const evn::KernelFamily* const> families = evn::opencl_training_kernel_families();
  *count = families.size();
  return families.data();
}
