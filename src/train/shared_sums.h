// All-reduce through memory that all ranks map, where they are processes of one machine: each copies its numbers there, sums its
// share of the elements over all ranks, in their order, and copies the sums back. An engine moves the same bytes several times
// more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "base/os/shared_memory.h"
#include "train/library.h"

namespace evn_train {

class SharedSums {
 public:
  SharedSums(std::uint32_t rank, std::uint32_t count, std::uint64_t timeout_ns)
      : rank_(rank), count_(count), timeout_ns_(timeout_ns) {}

  // Every rank calls it first. False in all of them where one has no part in the memory: ranks on several machines or in several
  // containers, no memory, more than 64 ranks, or EVN_RANKS=engine in the environment of one. `exchange`: the sum of an engine, by
  // which they find each other. Throws what that throws.
  bool open(const std::function<void(std::span<float>)>& exchange);

  // Replaces float32 or float64 numbers by their sums. Throws EVN_ERROR_TIMEOUT; EVN_ERROR_DEVICE_LOST where a rank has ended.
  void sum(void* data, std::size_t count, evn_dtype dtype);

 private:
  struct Progress;

  std::atomic<std::uint32_t>& progress(std::uint32_t rank) const;
  std::byte* part(std::uint32_t rank) const;
  std::size_t bytes() const;
  template <typename T>
  void sum_parts(T* data, std::size_t count);
  void meet();
  void wait_for(std::uint32_t rank, std::uint64_t begin_ns) const;

  const std::uint32_t rank_, count_;
  const std::uint64_t timeout_ns_;
  evn::os::SharedMemory memory_;
  std::uint32_t met_ = 0;   // how often all ranks have met
  std::uint32_t half_ = 0;  // of the two that each rank has for its numbers, the one of the next part
};

}  // namespace evn_train
