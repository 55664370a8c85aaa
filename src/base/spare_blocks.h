// Blocks of memory of one size that are kept for the next use: those of the lists that a run with many arguments makes.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

namespace evn {

class SpareBlocks {
 public:
  explicit SpareBlocks(std::size_t block_bytes) : block_bytes_(block_bytes) {}
  ~SpareBlocks() {
    for (std::atomic<void*>& slot : slots_) ::operator delete(slot.load(std::memory_order_relaxed));
  }
  SpareBlocks(const SpareBlocks&) = delete;
  SpareBlocks& operator=(const SpareBlocks&) = delete;

  // Memory for any type, to be given back here. From any thread.
  void* take(std::size_t bytes) {
    if (bytes > block_bytes_) return ::operator new(bytes);
    for (std::atomic<void*>& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) == nullptr) continue;
      if (void* const block = slot.exchange(nullptr, std::memory_order_acquire)) return block;
    }
    return ::operator new(block_bytes_);
  }
  void give_back(void* block, std::size_t bytes) noexcept {
    if (bytes <= block_bytes_) {
      for (std::atomic<void*>& slot : slots_) {
        void* none = nullptr;
        if (slot.compare_exchange_strong(none, block, std::memory_order_release, std::memory_order_relaxed)) return;
      }
    }
    ::operator delete(block);
  }

 private:
  static constexpr std::size_t kMost = 16;  // one run has up to fourteen

  const std::size_t block_bytes_;
  std::atomic<void*> slots_[kMost] = {};
};

}  // namespace evn
