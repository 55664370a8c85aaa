// A range of addresses for blocks that live together: the packed constants of a model. It is touched in huge pages where the system
// has them, so that a hundred megabytes cost fifty page faults, not twenty-five thousand, and kernels that read them few entries of
// the TLB.
#pragma once

#include <memory>
#include <mutex>

#include "base/ledger.h"

namespace evn {

class Slab : public std::enable_shared_from_this<Slab> {
 public:
  // What a block of `bytes` takes of a slab.
  static std::size_t room_of(std::size_t bytes);
  // nullptr where blocks are better taken one by one: little room is asked for, memory comes from the host's allocator, the system
  // refuses, or AddressSanitizer watches. Nothing is charged yet: what is not taken is not touched.
  static std::shared_ptr<Slab> make(const LedgerPtr& ledger, std::size_t room);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // The next block, aligned to 64 and charged to the ledger until its last owner lets go; the memory returns to the system with the
  // last of all blocks. nullptr when there is no room left. Throws EVN_ERROR_OUT_OF_MEMORY at the ledger's cap.
  std::shared_ptr<void> take(std::size_t bytes, MemoryClass cls);

 private:
  struct Block;
  Slab(LedgerPtr ledger, char* memory, std::size_t size) : ledger_(std::move(ledger)), memory_(memory), size_(size) {}
  void touch(std::size_t end) noexcept;

  const LedgerPtr ledger_;
  char* const memory_;
  const std::size_t size_;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::size_t touched_ = 0;  // huge pages up to here have been touched; size_: none are to be any more
};

}  // namespace evn
