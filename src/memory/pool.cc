#include "memory/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace evn {
namespace {

// Four classes to each doubling, so that a cached block wastes at most a fifth of itself.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= 256) return align_up(bytes, 64);
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return align_up(bytes, step);
}

}  // namespace

Pool::Pool(Backing* backing, std::string device_name, std::uint64_t limit) : backing_(backing), device_name_(std::move(device_name)) {
  stats_.limit = limit;
}

Pool::~Pool() { close(); }

void Pool::close() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_locked();
  backing_ = nullptr;
}

void Pool::add_use(std::size_t bytes, MemoryClass cls) {
  stats_.current += bytes;
  stats_.by_class[static_cast<int>(cls)] += bytes;
  stats_.peak = std::max(stats_.peak, stats_.current);
}

void Pool::drop_use(std::size_t bytes, MemoryClass cls) noexcept {
  stats_.current -= bytes;
  stats_.by_class[static_cast<int>(cls)] -= bytes;
}

void Pool::make_room(std::size_t bytes) {
  const auto left = [&] { return stats_.limit - std::min(stats_.limit, stats_.reserved); };
  if (bytes <= left()) return;
  trim_locked();
  if (bytes <= left()) return;
  throw make_error(EVN_ERROR_OUT_OF_MEMORY, "%zu bytes would pass the memory limit of %llu bytes: %llu are in use", bytes,
                   static_cast<unsigned long long>(stats_.limit), static_cast<unsigned long long>(stats_.reserved))
      .with_device(device_name_.c_str())
      .with_bytes(bytes, left());
}

void* Pool::take_cached(std::size_t capacity, std::size_t largest, bool pinned, std::size_t* got) noexcept {
  std::size_t best = cache_.size();
  for (std::size_t i = 0; i < cache_.size(); ++i) {
    const Cached& c = cache_[i];
    if (c.pinned != pinned || c.capacity < capacity || c.capacity > largest) continue;
    if (best == cache_.size() || c.capacity < cache_[best].capacity) best = i;
  }
  if (best == cache_.size()) return nullptr;
  void* memory = cache_[best].memory;
  *got = cache_[best].capacity;
  cache_[best] = cache_.back();
  cache_.pop_back();
  return memory;
}

// Outside of the lock, so that a slow log holds nobody up.
template <typename F>
auto Pool::logging_refusals(F&& body) const {
  try {
    return body();
  } catch (const Error& e) {
    if (e.status == EVN_ERROR_OUT_OF_MEMORY) {
      LogEvent(log_, EVN_LOG_WARNING, "memory.refused")
          .device(device_name_.c_str())
          .field("bytes_requested", e.bytes_requested)
          .field("bytes_available", e.bytes_available)
          .field("limit_bytes", stats_.limit)
          .write("memory of device %s refused: %s", device_name_.c_str(), e.message);
    }
    throw;
  }
}

Pool::Block Pool::allocate(std::size_t bytes, MemoryClass cls, bool pinned) {
  if (bytes == 0) return {};
  return logging_refusals([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return allocate_locked(bytes, cls, pinned);
  });
}

Pool::Block Pool::allocate_locked(std::size_t bytes, MemoryClass cls, bool pinned) {
  cache_.reserve(cache_.size() + live_blocks_ + 1);  // so that free() never allocates
  // What stays as long as a model is not rounded up for others to use again.
  const bool stays = cls == MemoryClass::kPacked || cls == MemoryClass::kWeights;
  Block block{nullptr, bytes, stays ? align_up(bytes, 64) : size_class(bytes), cls, pinned};
  block.memory = take_cached(block.capacity, block.capacity + block.capacity / 2, pinned, &block.capacity);
  if (block.memory != nullptr) {
    ++stats_.cache_hits;
  } else {
    const std::uint64_t left = stats_.limit - std::min(stats_.limit, stats_.reserved);
    if (block.capacity > left) block.capacity = align_up(bytes, 64);  // near the cap, no rounding to a class
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
    stats_.reserved += block.capacity;
  }
  ++stats_.allocations;
  ++live_blocks_;
  add_use(bytes, cls);
  return block;
}

void Pool::free(const Block& block) noexcept {
  if (block.memory == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  --live_blocks_;
  drop_use(block.size, block.cls);
  cache_.push_back({block.memory, block.capacity, block.pinned});
}

void Pool::charge(std::size_t bytes, MemoryClass cls) {
  logging_refusals([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    charge_locked(bytes, cls);
  });
}

void Pool::charge_locked(std::size_t bytes, MemoryClass cls) {
  make_room(bytes);
  stats_.reserved += bytes;
  add_use(bytes, cls);
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
  return s;
}

void Pool::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak = stats_.current;
}

void Pool::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_locked();
}

void Pool::trim_locked() noexcept {
  for (const Cached& c : cache_) {
    backing_->give_back(c.memory, c.capacity, c.pinned);
    stats_.reserved -= c.capacity;
  }
  cache_.clear();
}

PooledMemory::PooledMemory(std::shared_ptr<Pool> pool, std::size_t bytes, MemoryClass cls, bool pinned) : pool_(std::move(pool)) {
  block_ = pool_->allocate(bytes, cls, pinned);
}

PooledMemory::~PooledMemory() {
  if (pool_ != nullptr) pool_->free(block_);
}

}  // namespace evn
