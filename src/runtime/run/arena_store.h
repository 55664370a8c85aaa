// The memory for intermediate values that a session's runs take, and leave for those that come: a bounded number of arenas, which
// plans of other shapes share. docs/decisions/0058-arenas.md
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/os/fork.h"
#include "device/device.h"

namespace evn {

class ArenaStore;

// What one run of a plan needs: bytes on each of the devices.
struct ArenaNeed {
  std::span<Device* const> devices;
  std::span<const std::size_t> bytes;

  std::uint64_t total() const;
};

// Memory for one run of a plan: a block on each device on which some is needed.
class Arena {
 public:
  // Throws EVN_ERROR_OUT_OF_MEMORY, after `first` and other reclaimers have given back what they have.
  Arena(const ArenaNeed& need, Reclaimer* first);

  // nullptr: there is no block.
  void* memory_on(const Device& device) const;
  std::uint64_t bytes() const { return bytes_; }

 private:
  friend class ArenaStore;
  struct Block {
    const Device* device;
    PooledMemory memory;
  };
  std::size_t size_on(const Device& device) const;
  bool has_room_for(const ArenaNeed& need) const;
  // Whether one of these sizes may take this one's place for all runs that it was used for.
  bool is_covered_by(const ArenaNeed& need) const;
  std::uint64_t bytes_in(const Pool& pool) const;

  std::vector<Block> blocks_;
  std::uint64_t bytes_ = 0;
  std::uint64_t least_need_ = 0;  // of a run that it was used for
  std::uint64_t run_ = 0;         // the latest
  std::unique_ptr<Arena> next_;   // while it is idle: one that was used before it
};
using ArenaPtr = std::unique_ptr<Arena>;

struct ArenaStats {
  std::uint64_t bytes = 0;  // of runs that are under way, and idle
  std::uint64_t idle_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t made = 0;
  std::uint64_t reused = 0;
  std::uint64_t dropped = 0;
};

// The stores of a runtime: when a device has no memory left, they give back what they keep there, the least recently used first.
class ArenaStores final : public Reclaimer {
 public:
  bool reclaim(const Pool& pool, std::size_t bytes) noexcept override;

 private:
  friend class ArenaStore;
  std::mutex mutex_;  // comes before those of the stores
  const os::HeldOverForks held_{mutex_};
  ArenaStore* first_ = nullptr;
  std::atomic<std::uint64_t> runs_{0};
};

// The arenas of a session and of the bodies of its Loop, If and Scan nodes.
class ArenaStore final : public Reclaimer {
 public:
  // Idle arenas have at most `budget` bytes together, but for those of the latest run.
  ArenaStore(std::shared_ptr<ArenaStores> all, std::uint64_t budget);
  ~ArenaStore() override;

  // A number for a run, greater than those of runs that began before.
  std::uint64_t begin_run() { return all_->runs_.fetch_add(1, std::memory_order_relaxed) + 1; }

  // Guards the store and the idle executions of the session's plans, so that a run takes what it needs, and gives it back, under
  // one lock. Nothing is allocated from a pool, or freed, while it is held.
  std::mutex& mutex() { return mutex_; }

  // -- With mutex() held ----------------------------------------------------------------------------------------------------

  // The smallest idle arena with room, of no more than twice as many bytes, or of more where another would pass the budget.
  // nullptr: one must be made; then *replaced has what that one will take the place of, or nothing.
  ArenaPtr take(const ArenaNeed& need, ArenaPtr* replaced) noexcept;
  // Puts what is dropped in front of the list *dropped, to be freed without the lock.
  void keep(ArenaPtr arena, std::uint64_t run, ArenaPtr* dropped) noexcept;

  // -- Without it -----------------------------------------------------------------------------------------------------------

  // Frees what is replaced first. Throws EVN_ERROR_OUT_OF_MEMORY when a device refuses with nothing left to give back.
  ArenaPtr make(const ArenaNeed& need, ArenaPtr replaced);
  // Frees an arena that take or make gave.
  void discard(ArenaPtr arena) noexcept;
  static void free_list(ArenaPtr list) noexcept;
  bool reclaim(const Pool& pool, std::size_t bytes) noexcept override;
  ArenaStats stats() const;

 private:
  friend class ArenaStores;
  // Where the pointer to the idle arena is that was used the longest ago, of those in the pool (nullptr: any), and not of `run`.
  // nullptr: there is none.
  ArenaPtr* find_oldest(const Pool* pool, std::uint64_t run) noexcept;
  ArenaPtr drop(ArenaPtr* at) noexcept;
  static void push(ArenaPtr* list, ArenaPtr arena) noexcept;
  // What drop_oldest would drop was used by this run; UINT64_MAX: there is nothing.
  std::uint64_t oldest_run(const Pool& pool) noexcept;
  ArenaPtr drop_oldest(const Pool& pool) noexcept;

  const std::shared_ptr<ArenaStores> all_;
  const std::uint64_t budget_;
  ArenaStore* next_ = nullptr;  // in the list of all; guarded by their mutex
  mutable std::mutex mutex_;    // guards what follows
  const os::HeldOverForks held_{mutex_};
  ArenaPtr idle_;  // the latest first
  std::uint64_t idle_count_ = 0;
  std::uint64_t live_count_ = 0;
  std::uint64_t live_bytes_ = 0;
  ArenaStats stats_;
};

// The arena of a run, until it is kept.
class ArenaLease {
 public:
  ArenaLease() = default;
  ArenaLease(ArenaStore* store, ArenaPtr arena) : store_(store), arena_(std::move(arena)) {}
  ArenaLease(ArenaLease&& o) noexcept : store_(o.store_), arena_(std::move(o.arena_)) {}
  ArenaLease& operator=(ArenaLease&& o) noexcept {
    std::swap(store_, o.store_);
    std::swap(arena_, o.arena_);
    return *this;
  }
  ~ArenaLease() {
    if (arena_ != nullptr) store_->discard(std::move(arena_));
  }
  ArenaPtr release() { return std::move(arena_); }
  void* memory_on(const Device& device) const { return arena_ != nullptr ? arena_->memory_on(device) : nullptr; }

 private:
  ArenaStore* store_ = nullptr;
  ArenaPtr arena_;
};

}  // namespace evn
