// The constants of one model as kernels and devices want them: packed copies, and plain copies in the memory of devices that
// cannot read the host's. Shared by all sessions of the model.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "runtime/plain_weights.h"

namespace evn {

class PackedStore {
 public:
  // The packed copy of constant input `input`; memory null when the kernel packs nothing. The store keeps it. `plain` (nullable: they
  // are there) brings the constant's bytes back where they are needed for it.
  Buffer packed(Device& device, const Kernel& kernel, const OpDesc& desc, int input, PlainWeights::Access* plain);
  // The constant's plain bytes on a device that is not host-addressable; on others the bytes themselves.
  Buffer plain(Device& device, const Weight& weight);

 private:
  struct Key {
    std::uint64_t weight;
    std::uint64_t version;
    const Device* device;
    const Kernel* kernel;  // nullptr: plain
    int input;
    std::uint64_t variant;
    std::size_t bytes;
    auto operator<=>(const Key&) const = default;
  };
  Buffer upload(Device& device, PooledMemory memory, const void* bytes, std::size_t size, const Key& key);

  std::mutex mutex_;
  std::map<Key, PooledMemory> copies_;
};

}  // namespace evn
