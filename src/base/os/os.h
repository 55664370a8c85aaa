// The operating system's boundary: files, threads, sleeping, libraries, clocks. One file per system implements it (linux.cc).
// Calls that the system may refuse pass the fault seams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/ledger.h"

namespace evn::os {

// ----------------------------------------------------------------------------------------------------------- files --

struct FileBytes {
  std::shared_ptr<const void> data;  // aligned to 64, charged as MemoryClass::kLoading... until the last owner lets go
  std::size_t size = 0;
};

// Reads a whole regular file. Throws EVN_ERROR_IO (with the system's reason), EVN_ERROR_LIMIT above max_bytes. Never blocks on a
// FIFO or device: those are refused. `cls` says what the bytes are counted as. Has cancellation points.
FileBytes read_file(const std::string& path, std::uint64_t max_bytes, const LedgerPtr& ledger, MemoryClass cls);

// What tells a file from another one, and from itself after it was written to, as far as the system's clock goes.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t changed_ns = 0;  // time of the last change of the content
};

// A regular file that stays open. Any thread may read it.
class File {
 public:
  virtual ~File() = default;
  std::uint64_t size() const { return size_; }
  // The file's identity as it was when the file was opened.
  virtual FileIdentity identity() const noexcept = 0;
  // The whole file in pages that are read when they are first touched, and cannot be written; they outlive the File. nullptr when
  // the system refuses. To touch what somebody has cut off the file meanwhile ends the process.
  virtual std::shared_ptr<const void> map() const = 0;
  // Reads bytes that lie inside the file, with cancellation points. Throws EVN_ERROR_IO.
  virtual void read(std::uint64_t offset, void* to, std::size_t size) const = 0;
  // Throws EVN_ERROR_IO when the size or the time of the last change are not what they were when the file was opened.
  virtual void check_unchanged() const = 0;

 protected:
  explicit File(std::uint64_t size) : size_(size) {}

 private:
  std::uint64_t size_;
};

// Opens what read_file would read, and throws what that throws.
std::shared_ptr<const File> open_for_reading(const std::string& path, std::uint64_t max_bytes);

// Writes a file so that a reader sees the old one or the whole new one. Throws EVN_ERROR_IO, also where
// what is there is no regular file; leaves no temporary file.
struct Piece {
  const void* data;
  std::size_t size;
};
void write_file_atomically(const std::string& path, std::span<const Piece> pieces);
inline void write_file_atomically(const std::string& path, const void* data, std::size_t size) {
  const Piece all{data, size};
  write_file_atomically(path, {&all, 1});
}

// Makes a folder and its parents (mode 0700). False when it cannot.
bool make_folders(const std::string& path) noexcept;

// Removes a file; does nothing where it is not there or cannot be removed.
void remove_file(const std::string& path) noexcept;

// The number of this process.
long process_id() noexcept;

// secure_getenv: "" when unset or when the process runs with raised privileges.
std::string environment(const char* name);

// --------------------------------------------------------------------------------------------------------- threads --

// Starts a thread with all signals blocked. Throws EVN_ERROR_NO_THREADS.
class Thread {
 public:
  Thread() = default;
  Thread(void (*body)(void*), void* argument);
  Thread(Thread&& o) noexcept : handle_(o.handle_), joinable_(o.joinable_) { o.joinable_ = false; }
  Thread& operator=(Thread&&) = delete;
  ~Thread();  // joins

 private:
  unsigned long handle_ = 0;
  bool joinable_ = false;
};

// Sleeps while *word == expected; may wake early.
void futex_wait(const std::uint32_t* word, std::uint32_t expected) noexcept;
void futex_wake_all(const std::uint32_t* word) noexcept;
void relax() noexcept;  // a hint inside a spin loop

// Cores that this process may use: the smaller of its affinity and its cgroup's quota, at least 1.
int usable_cores() noexcept;

// Bytes of the second-level cache of a core; 0 where that is not known.
std::int64_t l2_cache_bytes() noexcept;

// Asks the system to let this process use the registers of matrix tiles (AMX). False where it refuses.
bool allow_tiles() noexcept;

// The core on which the calling thread is now; -1 where that is not known. No system call.
int current_core() noexcept;

// Moves the calling thread off its core to another that it may use, where there is one; the set of those that it may use stays as
// it is.
void leave_core() noexcept;

// ------------------------------------------------------------------------------------------------------- the rest --

// CLOCK_MONOTONIC.
std::uint64_t now_ns() noexcept;

// What the calling thread has had of a processor.
std::uint64_t thread_time_ns() noexcept;

// dlopen with RTLD_NOW | RTLD_LOCAL; nullptr and *why on failure.
void* open_library(const char* name, std::string* why);
void* find_symbol(void* library, const char* name) noexcept;
void close_library(void* library) noexcept;

// Returns a reference to the shared library that this code is in, for close_library; until then dlclose does not unload it. nullptr
// in a program that is linked statically.
void* reference_own_library() noexcept;

// The folder of the shared library (or program) that this code is in, with a slash at its end; "" when the system does not say.
std::string own_folder();

// The bytes that the linker put into that library to tell its builds apart; "" when it put none there.
std::string own_build_id();

std::uint64_t physical_memory_bytes() noexcept;

// Zeroed memory in whole pages; nullptr when the system refuses. It is taken when it is first touched, and given back at once.
// kSparse: much of it will never be touched. kDense: in huge pages where the system has them.
inline constexpr std::size_t kPageBytes = 4096;
enum class Touch { kDense, kSparse };
void* map_pages(std::size_t bytes, Touch touch) noexcept;
// Touches the huge page at `at`, a multiple of its size. False when that took so long that small pages are better for what follows.
inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
bool touch_huge_page(void* at) noexcept;
void forbid_huge_pages(void* memory, std::size_t bytes) noexcept;
void unmap_pages(void* memory, std::size_t bytes) noexcept;
// Gives the memory of freed blocks that the C library's allocator has kept back to the system. Does nothing in a C library that
// cannot do so.
void trim_allocator() noexcept;

}  // namespace evn::os
