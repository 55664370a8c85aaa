// Files that stay open for reading, and memory by the page.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/checked.h"
#include "base/error.h"
#include "base/os/beneath.h"
#include "base/os/files_linux.h"
#include "base/os/os.h"
#include "base/os/read_linux.h"

namespace evn::os {
namespace {

bool same(const struct timespec& a, const struct timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

class OpenFile final : public File {
 public:
  OpenFile(Fd fd, const struct stat& st, const std::string& path)
      : File(static_cast<std::uint64_t>(st.st_size)), fd_(std::move(fd)), st_(st), path_(path) {}

  void read(std::uint64_t offset, void* to, std::size_t size) const override {
    EVN_CHECK(offset <= this->size() && size <= this->size() - offset);
    read_bytes(fd_.get(), offset, to, size, path_);
  }

  FileIdentity identity() const noexcept override {
    return {st_.st_dev, st_.st_ino, size(),
            static_cast<std::uint64_t>(st_.st_mtim.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(st_.st_mtim.tv_nsec)};
  }

  std::shared_ptr<const void> map() const override {
    const auto bytes = static_cast<std::size_t>(size());
    if (bytes == 0) return nullptr;
    void* memory = nullptr;
    const int refused = io_call([&] {
      memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
      return memory == MAP_FAILED ? -1 : 0;
    });
    if (refused != 0) return nullptr;
    return std::shared_ptr<const void>(memory, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); });
  }

  void check_unchanged() const override {
    struct stat now = {};
    if (io_call([&] { return ::fstat(fd_.get(), &now); }) != 0) fail_io("read", path_, errno);
    if (now.st_size == st_.st_size && same(now.st_mtim, st_.st_mtim)) return;
    fail(EVN_ERROR_IO, "'%s' has changed since it was opened", path_.c_str());
  }

 private:
  Fd fd_;
  struct stat st_;
  std::string path_;
};

// `fd`: what opening the path gave, and errno.
std::shared_ptr<const File> file_of(Fd fd, const std::string& path, std::uint64_t max_bytes) {
  if (!fd.ok()) fail_io("open", path, errno);
  struct stat st = {};
  if (io_call([&] { return ::fstat(fd.get(), &st); }) != 0) fail_io("open", path, errno);
  if (!S_ISREG(st.st_mode)) fail(EVN_ERROR_IO, "'%s' is not a regular file", path.c_str());
  if (const auto size = static_cast<std::uint64_t>(st.st_size); size > max_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "'%s' has %llu bytes, the limit is %llu", path.c_str(), static_cast<unsigned long long>(size),
                     static_cast<unsigned long long>(max_bytes))
        .with_bytes(size, max_bytes);
  }
  if (st.st_size == 0) refuse_sizeless(fd.get(), path);
  return make_file(std::move(fd), st, path);
}

}  // namespace

std::shared_ptr<const File> make_file(Fd fd, const struct stat& st, const std::string& path) {
  return std::make_shared<const OpenFile>(std::move(fd), st, path);
}

std::shared_ptr<const File> open_for_reading(const std::string& path, std::uint64_t max_bytes) {
  if (path.find('\0') != std::string::npos) fail(EVN_ERROR_IO, "a path has a NUL byte in it");
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  return file_of(open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK), path, max_bytes);
}

void* map_pages(std::size_t bytes, Touch touch) noexcept {
  if (fault_hit(Seam::kAlloc)) return nullptr;
  const bool huge = touch == Touch::kDense && bytes >= 2 * kHugePageBytes;
  const std::size_t whole = huge ? bytes + kHugePageBytes : bytes;
  if (whole < bytes) return nullptr;
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (touch == Touch::kSparse) ::madvise(mapped, bytes, MADV_NOHUGEPAGE);
  if (!huge) return mapped;
  // Huge pages lie at multiples of their size: what is before the first and behind the last goes back.
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  const std::uintptr_t aligned = align_up(begin, kHugePageBytes);
  const std::uintptr_t end = align_up(aligned + bytes, kPageBytes);
  const std::uintptr_t mapped_end = align_up(begin + whole, kPageBytes);
  if (aligned > begin) ::munmap(mapped, aligned - begin);
  if (mapped_end > end) ::munmap(reinterpret_cast<void*>(end), mapped_end - end);
  void* const memory = reinterpret_cast<void*>(aligned);
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  if (!touch_huge_page(memory)) forbid_huge_pages(memory, bytes);
  return memory;
}

bool touch_huge_page(void* at) noexcept {
  // To clear one takes some 50 us. In a virtual machine whose host has taken back what was free in large pieces it takes 5 ms and
  // more, while small pages come out of pieces that the host has left.
  constexpr std::uint64_t kSlowNs = 2'000'000;
  const std::uint64_t begin_ns = now_ns();
  *static_cast<volatile char*>(at) = 0;
  return now_ns() - begin_ns < kSlowNs;
}

void forbid_huge_pages(void* memory, std::size_t bytes) noexcept { ::madvise(memory, bytes, MADV_NOHUGEPAGE); }

void unmap_pages(void* memory, std::size_t bytes) noexcept { ::munmap(memory, bytes); }

}  // namespace evn::os
