// The count of a device's bytes against its cap. memory/pool implements it; whoever owns bytes outside the pool (weights, file
// buffers) charges them here first, so that the cap counts everything.
#pragma once

#include <cstddef>
#include <memory>

#include "evener/evener.h"

namespace evn {

enum class MemoryClass : int {
  kTensors = EVN_MEMORY_TENSORS,
  kWeights = EVN_MEMORY_WEIGHTS,
  kPacked = EVN_MEMORY_PACKED,
  kArenas = EVN_MEMORY_ARENAS,
  kScratch = EVN_MEMORY_SCRATCH,
  kLoading = EVN_MEMORY_LOADING,
  kStates = EVN_MEMORY_STATES,
  kHeap = EVN_MEMORY_HEAP,  // counted by the Heap alone
};

// Where a ledger's host memory comes from: the host's allocator, or the system.
struct HostMemory {
  evn_allocator host{};

  // From here on blocks of the system are whole pages of their own, so that what is given back is given back to the system at once:
  // the C library may keep it.
  static constexpr std::size_t kPagesFrom = std::size_t{512} << 10;

  // nullptr when refused.
  void* obtain(std::size_t bytes, std::size_t alignment) const noexcept;
  void give_back(void* memory, std::size_t bytes) const noexcept;
  // Returns true if obtain() gives blocks of this size that are zero: pages of the system, which take no memory until they are
  // written.
  bool gives_zeros(std::size_t bytes) const noexcept;
};

class Ledger {
 public:
  virtual ~Ledger() = default;
  virtual HostMemory host_memory() const noexcept { return {}; }
  // Throws EVN_ERROR_OUT_OF_MEMORY with the bytes asked and left when the cap would be passed.
  virtual void charge(std::size_t bytes, MemoryClass cls) = 0;
  virtual void discharge(std::size_t bytes, MemoryClass cls) noexcept = 0;
  // Host memory, charged and aligned to 64. `*capacity` receives what `give` has to be told. Throws EVN_ERROR_OUT_OF_MEMORY.
  virtual void* take(std::size_t bytes, MemoryClass cls, std::size_t* capacity);
  virtual void give(void* memory, std::size_t bytes, std::size_t capacity, MemoryClass cls) noexcept;
};
using LedgerPtr = std::shared_ptr<Ledger>;

// Memory of the ledger's host_memory, aligned to 64 and charged to `ledger` until the last owner lets go; without a ledger a block
// of operator new. Not zeroed.
std::shared_ptr<void> allocate_charged(const LedgerPtr& ledger, std::size_t bytes, MemoryClass cls);

}  // namespace evn
