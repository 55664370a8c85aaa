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
};

class Ledger {
 public:
  virtual ~Ledger() = default;
  // Throws EVN_ERROR_OUT_OF_MEMORY with the bytes asked and left when the cap would be passed.
  virtual void charge(std::size_t bytes, MemoryClass cls) = 0;
  virtual void discharge(std::size_t bytes, MemoryClass cls) noexcept = 0;
};
using LedgerPtr = std::shared_ptr<Ledger>;

// Host memory aligned to 64 and charged to `ledger` (nullable: not counted) until the last owner lets go. Not zeroed.
std::shared_ptr<void> allocate_charged(const LedgerPtr& ledger, std::size_t bytes, MemoryClass cls);

}  // namespace evn
