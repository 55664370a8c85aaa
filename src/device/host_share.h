// Memory of the host that a device with unified memory uses where it lies: what would be copies to the device and from it becomes
// the order in which the two use the memory. docs/decisions/0079-host-memory-in-place.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/pool.h"

namespace evn {

struct Event;

// How memory of the host must lie for a device to use it there.
struct HostSharing {
  std::size_t alignment = 0;  // of its address, in bytes; 0: the device uses none
  std::size_t multiple = 1;   // of its size
  bool is_free = false;       // the two see each other's bytes without being told

  bool exists() const { return alignment != 0; }
  bool fits(const void* address, std::size_t bytes) const {
    return exists() && bytes != 0 && bytes % multiple == 0 && reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
  }
};

// Some memory of the host as one of the device's buffers. The host may read and write it whenever no use is under way. The memory
// must outlive this, and this the device's work.
class HostShare {
 public:
  HostShare() = default;
  virtual ~HostShare() = default;
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;

  const Buffer& buffer() const { return buffer_; }

  // A use: what the caller enqueues on the device from now on may read and write the buffer, and sees what the host has written.
  // Uses of several callers are counted. Returns the end of what it has enqueued. Throws what Device::copy does; then there is no
  // use.
  virtual Event begin() = 0;
  // All of the use has been enqueued. Where it was the only one, the host sees what it has written once the event has happened.
  // When it throws, the use has ended nevertheless.
  virtual Event end() = 0;

 protected:
  Buffer buffer_;
};
using HostSharePtr = std::shared_ptr<HostShare>;

}  // namespace evn
