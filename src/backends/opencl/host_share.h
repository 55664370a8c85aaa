// Memory of the host as a buffer of an OpenCL device with unified memory (CL_MEM_USE_HOST_PTR).
#pragma once

#include "backends/opencl/device.h"

namespace evn {

// How memory must lie for the driver to work in it where it lies, as a trial on some memory tells; nothing where the driver works
// in a copy of its own. `alignment`: what kernels count on. Calls that fail count as a refusal. Throws where memory of the host is
// short.
HostSharing try_host_sharing(const OpenClFound& found, cl_context context, cl_command_queue queue, std::size_t alignment);

// While no use is under way the host has the memory mapped, as the specification asks for; not where the device shares all memory.
class OpenClHostShare final : public HostShare {
 public:
  OpenClHostShare(OpenClDevice& device, ClMemory buffer, std::size_t bytes, bool is_free);
  ~OpenClHostShare() override;
  Event begin() override;
  Event end() override;

 private:
  OpenClDevice& device_;
  const bool is_free_;
  const ClMemory owned_;
  OpenClMemory memory_;
  std::mutex mutex_;  // guards what follows and OpenClMemory::mapped, and the order of what is enqueued with them
  std::uint32_t uses_ = 0;
};

}  // namespace evn
