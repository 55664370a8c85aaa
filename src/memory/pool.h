// A caching pool over one device's memory: size classes, a hard cap, statistics by class. What the memory is, the device says
// through Backing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/heap.h"
#include "base/ledger.h"
#include "base/log.h"

namespace evn {

// Where a pool's memory comes from. Handles are opaque (on the CPU: addresses).
class Backing {
 public:
  virtual ~Backing() = default;
  // Returns nullptr when the system refuses.
  virtual void* obtain(std::size_t bytes, bool pinned) = 0;
  virtual void give_back(void* memory, std::size_t bytes, bool pinned) noexcept = 0;
};

class Pool;

// Who keeps blocks of pools for later, and gives them back when a pool has none left. Called without locks of the pool.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  // Frees such blocks of the pool, of `bytes` or more where there are as many. False: there were none.
  virtual bool reclaim(const Pool& pool, std::size_t bytes) noexcept = 0;
};

struct PoolStats {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  std::uint64_t reserved = 0;
  std::uint64_t limit = UINT64_MAX;
  std::uint64_t by_class[EVN_MEMORY_CLASS_COUNT] = {};
  std::uint64_t allocations = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t largest_free_block = 0;
  std::uint64_t cached = 0;            // in blocks that nobody uses
  std::uint64_t free_blocks = 0;       // such blocks
  std::uint64_t weights_dropped = 0;   // bytes of packed weights so far that made room for something else
  std::uint64_t weights_restored = 0;  // bytes of these that were packed again

  // In blocks that are in use, beyond what was asked for.
  std::uint64_t unused() const { return reserved - current - cached; }
  // The share of what is cached that is not in the largest free block.
  double fragmentation() const {
    return cached == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free_block) / static_cast<double>(cached);
  }
};

// When a pool gives back what it keeps for blocks to come, beside when it has to.
enum class TrimWhen : std::uint8_t {
  kNever,
  kIdle,    // no run is under way that uses the device; then what sessions keep for runs to come goes as well
  kAlways,  // nothing is kept
};
inline constexpr char kTrimWords[] = "never|idle|always";

struct CachePolicy {
  std::uint64_t limit = UINT64_MAX;  // of bytes that are kept
  TrimWhen trim = TrimWhen::kNever;
};

class Pool final : public Ledger, public Heap {
 public:
  // `backing` lives until close().
  Pool(Backing* backing, std::string device_name, std::uint64_t limit);
  ~Pool() override;

  // Before the pool is used by more than one thread.
  void set_log(const LogSink& log) { log_ = log; }
  void set_reclaimer(std::shared_ptr<Reclaimer> reclaimer) { reclaimer_ = std::move(reclaimer); }
  // What charged memory beside the pool is made of.
  // From now on the backing's memory is such memory, and large blocks of it are the pool's.
  void set_host_memory(const HostMemory& memory) {
    host_memory_ = memory;
    is_host_ = true;
  }
  HostMemory host_memory() const noexcept override { return host_memory_; }

  // From now on the pool counts blocks of the heap as well, and lives until let_go() and as long as there are such blocks.
  static void hold_heap(const std::shared_ptr<Pool>& pool) noexcept;
  bool admit(std::int64_t bytes, bool may_reclaim, Error* why) noexcept override;

  struct Block {
    void* memory = nullptr;
    std::size_t size = 0;      // as asked for
    std::size_t capacity = 0;  // as obtained
    MemoryClass cls = MemoryClass::kTensors;
    bool pinned = false;
    bool is_zero = false;  // it has come from the system, which has cleared it
  };
  // Bytes of 0 give a null block. Its bytes are zero only if it says so. Throws EVN_ERROR_OUT_OF_MEMORY with the bytes asked and
  // left and the device, after reclaimers have given back what they have: `first` (nullable), then the pool's own.
  Block allocate(std::size_t bytes, MemoryClass cls, bool pinned = false, Reclaimer* first = nullptr);
  void free(const Block& block) noexcept;

  void charge(std::size_t bytes, MemoryClass cls) override;
  void discharge(std::size_t bytes, MemoryClass cls) noexcept override;
  void* take(std::size_t bytes, MemoryClass cls, std::size_t* capacity) override;
  void give(void* memory, std::size_t bytes, std::size_t capacity, MemoryClass cls) noexcept override;

  PoolStats stats() const;
  void reset_peak();
  // Changes the cap. What is kept for later is given back where more than that is held; what is in use stays, and until enough of
  // it has been freed nothing more is given.
  void set_limit(std::uint64_t limit);
  // Changes what is kept for later. What is kept beyond that goes back to the system now.
  void set_cache_policy(const CachePolicy& policy);
  CachePolicy cache_policy() const;
  TrimWhen trims_when() const { return trim_when_.load(std::memory_order_relaxed); }
  // Gives back what is kept for later, by the pool and by its reclaimer.
  void trim();
  // Whether there is a cap.
  bool is_limited() const;
  // What may be taken beside all that is in use now.
  std::uint64_t left() const;
  // Packed weights were given back, or were packed again.
  void note_weights(std::uint64_t dropped, std::uint64_t restored) noexcept;
  // Gives back what is kept of blocks of models: a model that is being packed uses them again, nobody else is waiting for them.
  void trim_models();
  // Gives the cache back and forgets the backing. Blocks must have been freed; charges may still be given back later.
  void close() noexcept;

 private:
  void end() noexcept override;
  std::uint64_t heap_bytes() const noexcept { return static_cast<std::uint64_t>(std::max<std::int64_t>(bytes(), 0)); }
  std::uint64_t held() const noexcept { return stats_.reserved + heap_bytes(); }  // of the system
  std::uint64_t over_limit() const noexcept { return std::max(held(), stats_.limit) - stats_.limit; }
  std::uint64_t left_locked() const noexcept { return stats_.limit - std::min(stats_.limit, held()); }
  void note_peak() noexcept {
    stats_.peak = std::max(stats_.peak, stats_.current + heap_bytes());
    note_small_peak();
  }
  void note_small_peak() noexcept { small_peak_ = std::max(small_peak_, small_bytes()); }
  // Counts a block that was taken from the host's memory (negative: given back to it), if the C library allocates blocks of its
  // size. From any thread.
  void count_small(std::int64_t bytes) noexcept;
  std::uint64_t small_bytes() const noexcept {
    return static_cast<std::uint64_t>(
        std::max<std::int64_t>(small_bytes_.load(std::memory_order_relaxed) + Heap::small_bytes(), 0));
  }
  // Bytes of freed blocks that the C library may have kept since it was last trimmed.
  std::uint64_t retained_bytes() const noexcept { return small_peak_ - std::min(small_peak_, small_bytes()); }
  // Drops the cache and trims the C library's allocator if `bytes` more beside the retained bytes would exceed `left`.
  void trim_retained(std::uint64_t bytes, std::uint64_t left) noexcept;
  void add_use(std::size_t bytes, MemoryClass cls);
  void drop_use(std::size_t bytes, MemoryClass cls) noexcept;
  void charge_locked(std::size_t bytes, MemoryClass cls);
  Block allocate_locked(std::size_t bytes, MemoryClass cls, bool pinned);
  template <typename F>
  auto reclaiming(Reclaimer* first, F&& body, bool logs = true);
  void log_refusal(const Error& error) const;
  void make_room(std::size_t bytes);  // trims the cache until bytes fit under the cap; throws when they cannot
  void trim_locked(bool models_only = false) noexcept;
  void drop_largest() noexcept;
  void* take_cached(std::size_t capacity, std::size_t largest, bool pinned, std::size_t* got) noexcept;

  Backing* backing_;
  const std::string device_name_;
  LogSink log_;
  std::shared_ptr<Reclaimer> reclaimer_;  // nullable
  HostMemory host_memory_;
  bool is_host_ = false;
  std::atomic<TrimWhen> trim_when_{TrimWhen::kNever};
  std::size_t kept_of_models_ = 0;            // bytes in the cache
  std::uint64_t cached_ = 0;                  // all of them
  std::atomic<std::int64_t> small_bytes_{0};  // in blocks of the C library's allocator, without the heap's
  std::uint64_t small_peak_ = 0;              // most bytes in such blocks, the heap's included, since the allocator was trimmed
  std::shared_ptr<Pool> self_;                // while somebody holds the heap, or a block of it is in use
  mutable std::mutex mutex_;
  CachePolicy policy_;
  PoolStats stats_;  // without the heap, but for the peak
  struct Cached {
    void* memory;
    std::size_t capacity;
    bool pinned;
    bool of_model;
  };
  std::vector<Cached> cache_;  // sorted by nothing; short. Capacity is reserved before a block is handed out
  std::size_t live_blocks_ = 0;
};

// A block with an owner.
class PooledMemory {
 public:
  PooledMemory() = default;
  PooledMemory(std::shared_ptr<Pool> pool, std::size_t bytes, MemoryClass cls, bool pinned = false, Reclaimer* first = nullptr);
  PooledMemory(PooledMemory&& o) noexcept { swap(o); }
  PooledMemory& operator=(PooledMemory&& o) noexcept {
    swap(o);
    return *this;
  }
  ~PooledMemory();
  void* memory() const { return block_.memory; }
  std::size_t size() const { return block_.size; }
  bool is_zero() const { return block_.is_zero; }  // when it was allocated
  const Pool* pool() const { return pool_.get(); }

 private:
  void swap(PooledMemory& o) noexcept {
    std::swap(pool_, o.pool_);
    std::swap(block_, o.block_);
  }
  std::shared_ptr<Pool> pool_;
  Pool::Block block_;
};

}  // namespace evn
