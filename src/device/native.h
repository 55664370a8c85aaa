// Objects of a driver that a host shares with a device: its context, its memory and its events. A device that has such objects
// gives them by Device::native(). All are the driver's pointers, which nobody can check before the driver has taken them for what
// they are said to be.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace evn {

// Handles of the driver. With OpenCL: cl_context, cl_device_id, cl_command_queue.
struct NativeObjects {
  void* context = nullptr;
  void* device = nullptr;
  void* queue = nullptr;
};

class NativeSharing {
 public:
  // Those of the device, which stay its own. The queue is that of the kernels.
  virtual NativeObjects objects() = 0;

  // Memory of the host's driver as a buffer of this device. `keeper` holds a reference of it, and is what Buffer::memory points to:
  // the buffer is valid as long as that. Throws EVN_ERROR_INVALID_ARGUMENT, EVN_ERROR_UNSUPPORTED.
  struct Wrapped {
    Buffer buffer;
    std::shared_ptr<void> keeper;
  };
  virtual Wrapped wrap(void* memory, std::uint64_t offset, std::size_t bytes, bool read_only) = 0;
  // The driver's memory under a buffer of this device.
  virtual void* memory_of(const Buffer& buffer) const = 0;

  // Keeps an event of the host's, of the device's context, and lets it go.
  virtual void retain_event(void* event) = 0;
  virtual void release_event(void* event) noexcept = 0;
  // An event of the device's context that ends as `event` does, of whichever device that is. The caller releases it.
  virtual void* make_event(const Event& event) = 0;

  // Builds all programs of the device and writes their binaries into a folder, which is not ""; or their texts, for SPIR-V.
  struct Programs {
    std::uint32_t stored = 0;
    std::uint32_t refused = 0;  // by the driver; the log says why
  };
  virtual Programs store_programs(const std::string& folder, bool sources) = 0;

 protected:
  ~NativeSharing() = default;
};

}  // namespace evn
