// Memory that processes of one machine share, without a file that could be left behind.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evn::os {

// The name by which another process of the same user opens the memory. All zeros: there is none.
struct SharedMemoryName {
  std::uint32_t process = 0, descriptor = 0;
  std::uint64_t key = 0;  // random; memory that is found under the name and has another key is not the one that was meant
};

// Memory of zeros, page-aligned and allocated as a whole: no access fails later for want of memory, and no process can make it
// smaller. A member's lock ends with its process, however that ends.
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Return false where the system refuses, or nothing is found by that name.
  bool create(std::size_t bytes) noexcept;
  bool open(const SharedMemoryName& name, std::size_t bytes) noexcept;

  bool is_open() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  SharedMemoryName name() const;  // of what create() made, as long as this lives

  // Marks the member as alive, until this ends or its process does. Each member is another object, made by create() or open().
  bool lock(std::uint32_t member) noexcept;
  // Whether another object holds the member's lock.
  bool is_locked(std::uint32_t member) const noexcept;

 private:
  bool map(std::size_t bytes) noexcept;
  void close() noexcept;

  int descriptor_ = -1;
  std::byte* mapped_ = nullptr;  // with the key, on a page of its own
  std::byte* data_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace evn::os
