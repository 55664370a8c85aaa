// The memory for intermediate values that a session's runs take, and leave for those that come: a bounded number of arenas, which
// plans of other shapes share. docs/decisions/0058-arenas.md
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
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
  friend class ArenaStores;
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

  // Number of stores that reclaim has looked at so far. For tests.
  std::uint64_t looks() const;

 private:
  friend class ArenaStore;
  // A store that may have idle arenas. `run` is a lower bound of the run that used its oldest idle arena; find_oldest corrects it.
  struct Idle {
    std::uint64_t run;
    ArenaStore* store;
    bool operator<(const Idle& o) const { return run != o.run ? run < o.run : std::less<>()(store, o.store); }
  };
  using IdleQueue = std::set<Idle>;

  // Returns the store with the least recently used idle arena in the pool; nullptr: no store has one. Under the mutex.
  ArenaStore* find_oldest(const Pool& pool) noexcept;
  // Moves an entry to where `run` belongs. Returns the entry to look at next.
  IdleQueue::iterator move_to(IdleQueue::iterator at, std::uint64_t run) noexcept;

  mutable std::mutex mutex_;  // guards what follows; comes before those of the stores
  const os::HeldOverForks held_{mutex_};
  IdleQueue idle_;  // the least recently used first
  std::uint64_t looks_ = 0;
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
  // Returns true if the runtime may reclaim the idle arenas, or there are none. Otherwise the caller calls offer() without the
  // mutex.
  bool is_offered() const noexcept { return idle_ == nullptr || place_.empty(); }

  // -- Without it -----------------------------------------------------------------------------------------------------------

  // Frees what is replaced first. Throws EVN_ERROR_OUT_OF_MEMORY when a device refuses with nothing left to give back.
  ArenaPtr make(const ArenaNeed& need, ArenaPtr replaced);
  // Frees an arena that take or make gave.
  void discard(ArenaPtr arena) noexcept;
  // Lets the runtime reclaim the idle arenas.
  void offer() noexcept;
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
  ArenaPtr drop_oldest(const Pool& pool) noexcept;

  const std::shared_ptr<ArenaStores> all_;
  const std::uint64_t budget_;
  // Entry of this store while it is not in the queue of all_; changed under both mutexes.
  ArenaStores::IdleQueue::node_type place_;
  ArenaStores::IdleQueue::iterator at_;  // in the queue, if place_ is empty; guarded by the mutex of all_
  mutable std::mutex mutex_;             // guards what follows
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
