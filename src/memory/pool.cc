#include "memory/pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/os/fork.h"
#include "base/os/os.h"

namespace evn {
namespace {

// Four classes to each doubling, so that a cached block wastes at most a fifth of itself.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= 256) return align_up(bytes, 64);
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return align_up(bytes, step);
}

// Blocks that live as long as a model.
bool is_of_model(MemoryClass cls) { return cls == MemoryClass::kPacked || cls == MemoryClass::kWeights; }

// Lock of a pool. Meanwhile allocations of a backing free no idle memory of sessions, whose blocks go back to the pool.
class PoolLock {
 public:
  explicit PoolLock(std::mutex& mutex) : lock_(mutex) {}

 private:
  const HeapReclaim not_here_{false};
  const std::lock_guard<std::mutex> lock_;
};

// Bytes that the C library's allocator retains of freed blocks, from which trimming it pays.
constexpr std::uint64_t kLeastRetained = std::uint64_t{1} << 20;

constexpr std::size_t kMostKeptOfModels = std::size_t{12} << 20;  // in the cache: one large weight, or a few

}  // namespace

Pool::Pool(Backing* backing, std::string device_name, std::uint64_t limit)
    : backing_(backing), device_name_(std::move(device_name)) {
  stats_.limit = limit;
  os::hold_over_forks(mutex_);
}

Pool::~Pool() {
  close();
  os::let_go_over_forks(mutex_);
}

void Pool::close() noexcept {
  const PoolLock lock(mutex_);
  trim_locked();
  backing_ = nullptr;
}

void Pool::add_use(std::size_t bytes, MemoryClass cls) {
  stats_.current += bytes;
  stats_.by_class[static_cast<int>(cls)] += bytes;
  note_peak();
}

void Pool::drop_use(std::size_t bytes, MemoryClass cls) noexcept {
  note_small_peak();
  stats_.current -= bytes;
  stats_.by_class[static_cast<int>(cls)] -= bytes;
}

void Pool::count_small(std::int64_t bytes) noexcept {
  const bool is_small = static_cast<std::size_t>(std::abs(bytes)) < HostMemory::kPagesFrom;
  if (is_host_ && is_small && host_memory_.host.allocate == nullptr) small_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void Pool::trim_retained(std::uint64_t bytes, std::uint64_t left) noexcept {
  const std::uint64_t retained = retained_bytes();
  if (retained < kLeastRetained || (bytes <= left && retained <= left - bytes)) return;
  trim_locked();  // small cached blocks would hold the pages around them
  os::trim_allocator();
  small_peak_ = small_bytes();
}

void Pool::make_room(std::size_t bytes) {
  if (bytes > left_locked()) trim_locked();
  if (bytes <= left_locked()) return trim_retained(bytes, left_locked());
  throw make_error(EVN_ERROR_OUT_OF_MEMORY, "%zu bytes would pass the memory limit of %llu bytes: %llu are in use", bytes,
                   static_cast<unsigned long long>(stats_.limit), static_cast<unsigned long long>(held()))
      .with_device(device_name_.c_str())
      .with_bytes(bytes, left_locked());
}

void* Pool::take_cached(std::size_t capacity, std::size_t largest, bool pinned, std::size_t* got) noexcept {
  // From the latest on, whose bytes caches may still have. Nothing is better than one of that size, so that a program with many
  // blocks of a few sizes does not look at all of them.
  std::size_t best = cache_.size();
  for (std::size_t i = cache_.size(); i-- > 0;) {
    const Cached& c = cache_[i];
    if (c.pinned != pinned || c.capacity < capacity || c.capacity > largest) continue;
    if (best == cache_.size() || c.capacity < cache_[best].capacity) best = i;
    if (c.capacity == capacity) break;
  }
  if (best == cache_.size()) return nullptr;
  void* memory = cache_[best].memory;
  *got = cache_[best].capacity;
  if (cache_[best].of_model) kept_of_models_ -= cache_[best].capacity;
  cached_ -= cache_[best].capacity;
  cache_[best] = cache_.back();
  cache_.pop_back();
  return memory;
}

// Outside of the lock, so that a slow log holds nobody up.
void Pool::log_refusal(const Error& e) const {
  LogEvent(log_, EVN_LOG_WARNING, "memory.refused")
      .device(device_name_.c_str())
      .field("bytes_requested", e.bytes_requested)
      .field("bytes_available", e.bytes_available)
      .field("limit_bytes", stats().limit)
      .write("memory of device %s refused: %s", device_name_.c_str(), e.message);
}

// Calls body() under the lock; where it is refused memory, again as long as others give some back.
template <typename F>
auto Pool::reclaiming(Reclaimer* first, F&& body, bool logs) {
  for (;;) {
    try {
      const PoolLock lock(mutex_);
      return body();
    } catch (const Error& e) {
      if (e.status != EVN_ERROR_OUT_OF_MEMORY) throw;
      const std::uint64_t missing = e.bytes_requested - std::min(e.bytes_requested, e.bytes_available);
      const auto gives = [&](Reclaimer* r) { return r != nullptr && r->reclaim(*this, std::max<std::uint64_t>(missing, 1)); };
      if (gives(first) || gives(reclaimer_.get())) continue;
      if (logs) log_refusal(e);
      throw;
    }
  }
}

Pool::Block Pool::allocate(std::size_t bytes, MemoryClass cls, bool pinned, Reclaimer* first) {
  if (bytes == 0) return {};
  return reclaiming(first, [&] { return allocate_locked(bytes, cls, pinned); });
}

Pool::Block Pool::allocate_locked(std::size_t bytes, MemoryClass cls, bool pinned) {
  const std::size_t blocks = cache_.size() + live_blocks_ + 1;
  if (cache_.capacity() < blocks) {  // so that free() never allocates
    const HeapPause paused;
    cache_.reserve(blocks + blocks / 2);
  }
  // What stays as long as a model is not rounded up for others to use again, and under a cap nothing is.
  const bool stays = is_of_model(cls) || stats_.limit != UINT64_MAX;
  Block block{nullptr, bytes, stays ? align_up(bytes, 64) : size_class(bytes), cls, pinned};
  block.memory = take_cached(block.capacity, block.capacity + block.capacity / (stays ? 16 : 2), pinned, &block.capacity);
  if (block.memory != nullptr) {
    ++stats_.cache_hits;
  } else {
    if (block.capacity > left_locked()) block.capacity = align_up(bytes, 64);  // near the cap, no rounding to a class
    make_room(block.capacity);
    block.memory = backing_->obtain(block.capacity, pinned);
    if (block.memory == nullptr && !cache_.empty()) {
      trim_locked();
      block.memory = backing_->obtain(block.capacity, pinned);
    }
    if (block.memory == nullptr) {
      throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory for %zu bytes", block.capacity)
          .with_device(device_name_.c_str())
          .with_bytes(bytes, 0);
    }
    block.is_zero = is_host_ && host_memory_.gives_zeros(block.capacity);
    stats_.reserved += block.capacity;
    count_small(static_cast<std::int64_t>(block.capacity));
  }
  ++stats_.allocations;
  ++live_blocks_;
  add_use(bytes, cls);
  return block;
}

void Pool::free(const Block& block) noexcept {
  if (block.memory == nullptr) return;
  const PoolLock lock(mutex_);
  --live_blocks_;
  if (backing_ == nullptr) {  // closed: only what `take` gave is left
    host_memory_.give_back(block.memory, block.capacity);
    stats_.reserved -= block.capacity;
    count_small(-static_cast<std::int64_t>(block.capacity));
    drop_use(block.size, block.cls);
    return;
  }
  drop_use(block.size, block.cls);
  const bool of_model = is_of_model(block.cls);
  if (of_model) {
    if (kept_of_models_ + block.capacity > kMostKeptOfModels) trim_locked(true);
    kept_of_models_ += block.capacity;
  }
  cache_.push_back({block.memory, block.capacity, block.pinned, of_model});
  cached_ += block.capacity;
  if (held() > stats_.limit || policy_.trim == TrimWhen::kAlways) return trim_locked();  // lowered: nothing is kept
  if (cached_ > policy_.limit) drop_largest();
}

void Pool::charge(std::size_t bytes, MemoryClass cls) {
  reclaiming(nullptr, [&] { charge_locked(bytes, cls); });
}

void Pool::charge_locked(std::size_t bytes, MemoryClass cls) {
  make_room(bytes);
  stats_.reserved += bytes;
  add_use(bytes, cls);
}

void Pool::hold_heap(const std::shared_ptr<Pool>& pool) noexcept {
  pool->self_ = pool;
  pool->hold();
}

void Pool::end() noexcept {
  const std::shared_ptr<Pool> last = std::move(self_);  // nobody else can come here
}

bool Pool::admit(std::int64_t bytes, bool may_reclaim, Error* why) noexcept {
  const HeapPause paused;
  const auto count = [&] {
    make_room(static_cast<std::size_t>(bytes));
    add(bytes);
    note_peak();
  };
  try {
    if (may_reclaim) {
      const HeapReclaim once(false);
      reclaiming(nullptr, count, false);  // the log is the host's, who may not be called from everywhere
    } else {
      const std::lock_guard<std::mutex> lock(mutex_);
      count();
    }
    return true;
  } catch (const Error& e) {
    *why = e;
    return false;
  }
}

void Pool::discharge(std::size_t bytes, MemoryClass cls) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.reserved -= bytes;
  drop_use(bytes, cls);
}

PoolStats Pool::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  PoolStats s = stats_;
  for (const Cached& c : cache_) s.largest_free_block = std::max<std::uint64_t>(s.largest_free_block, c.capacity);
  const std::uint64_t heap = heap_bytes();
  s.current += heap;
  s.reserved += heap;
  s.by_class[static_cast<int>(MemoryClass::kHeap)] = heap;
  s.peak = std::max(s.peak, s.current);
  s.cached = cached_;
  s.free_blocks = cache_.size();
  return s;
}

bool Pool::is_limited() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_.limit != UINT64_MAX;
}

std::uint64_t Pool::left() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_.limit - std::min(stats_.limit, held() - cached_);
}

void Pool::note_weights(std::uint64_t dropped, std::uint64_t restored) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.weights_dropped += dropped;
  stats_.weights_restored += restored;
}

// Few large blocks go rather than many small ones: those are cheaper to take anew for each byte.
void Pool::drop_largest() noexcept {
  while (cached_ > policy_.limit) {
    const auto largest =
        std::max_element(cache_.begin(), cache_.end(), [](const Cached& a, const Cached& b) { return a.capacity < b.capacity; });
    backing_->give_back(largest->memory, largest->capacity, largest->pinned);
    stats_.reserved -= largest->capacity;
    count_small(-static_cast<std::int64_t>(largest->capacity));
    cached_ -= largest->capacity;
    if (largest->of_model) kept_of_models_ -= largest->capacity;
    *largest = cache_.back();
    cache_.pop_back();
  }
}

void Pool::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak = 0;
  note_peak();
}

void Pool::set_limit(std::uint64_t limit) {
  std::uint64_t over = 0;
  {
    const PoolLock lock(mutex_);
    stats_.limit = limit;
    if (held() > limit) trim_locked();
    trim_retained(0, left_locked());
    over = over_limit();
  }
  while (over != 0 && reclaimer_ != nullptr && reclaimer_->reclaim(*this, over)) {  // what is freed now is not kept
    const std::lock_guard<std::mutex> lock(mutex_);
    over = over_limit();
  }
}

void Pool::set_cache_policy(const CachePolicy& policy) {
  const PoolLock lock(mutex_);
  policy_ = policy;
  trim_when_.store(policy.trim, std::memory_order_relaxed);
  if (policy.trim != TrimWhen::kNever) trim_locked();
  else if (cached_ > policy.limit) drop_largest();
}

CachePolicy Pool::cache_policy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return policy_;
}

void Pool::trim() {
  if (reclaimer_ != nullptr) reclaimer_->reclaim(*this, SIZE_MAX);
  const PoolLock lock(mutex_);
  trim_locked();
  trim_retained(0, 0);
}

void Pool::trim_models() {
  const PoolLock lock(mutex_);
  trim_locked(true);
}

void Pool::trim_locked(bool models_only) noexcept {
  std::size_t kept = 0;
  for (const Cached& c : cache_) {
    if (models_only && !c.of_model) {
      cache_[kept++] = c;
      continue;
    }
    backing_->give_back(c.memory, c.capacity, c.pinned);
    stats_.reserved -= c.capacity;
    count_small(-static_cast<std::int64_t>(c.capacity));
    cached_ -= c.capacity;
  }
  cache_.erase(cache_.begin() + static_cast<std::ptrdiff_t>(kept), cache_.end());
  kept_of_models_ = 0;
}

void* Pool::take(std::size_t bytes, MemoryClass cls, std::size_t* capacity) {
  if (!is_host_ || bytes < HostMemory::kPagesFrom) {
    void* const memory = Ledger::take(bytes, cls, capacity);
    count_small(static_cast<std::int64_t>(bytes));
    return memory;
  }
  const Block block = allocate(bytes, cls);
  *capacity = block.capacity;
  return block.memory;
}

void Pool::give(void* memory, std::size_t bytes, std::size_t capacity, MemoryClass cls) noexcept {
  if (!is_host_ || bytes < HostMemory::kPagesFrom) {
    Ledger::give(memory, bytes, capacity, cls);
    return count_small(-static_cast<std::int64_t>(bytes));
  }
  free({memory, bytes, capacity, cls, false});
}

PooledMemory::PooledMemory(std::shared_ptr<Pool> pool, std::size_t bytes, MemoryClass cls, bool pinned, Reclaimer* first)
    : pool_(std::move(pool)) {
  block_ = pool_->allocate(bytes, cls, pinned, first);
}

PooledMemory::~PooledMemory() {
  if (pool_ != nullptr) pool_->free(block_);
}

}  // namespace evn
