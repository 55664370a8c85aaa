// What the Linux files of os/ share: system calls behind the I/O seam, and pieces that tests reach directly.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>

#include "base/fault.h"

namespace evn::os {

class File;

// Bytes of one write at most.
inline constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

// Owns a file descriptor.
class Fd {
 public:
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  Fd& operator=(Fd&& o) noexcept {
    const int mine = fd_;
    fd_ = o.fd_;
    o.fd_ = mine;
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // Closes now; false (with errno) when the system reports a late write error.
  bool close_checked() noexcept;

 private:
  int fd_;
};

// Takes a call through the I/O seam: a refused one gives -1 with errno EIO. EINTR is retried.
template <typename Call>
auto io_call(Call call) noexcept -> decltype(call()) {
  if (fault_hit(Seam::kIo)) {
    errno = EIO;
    return -1;
  }
  decltype(call()) r;
  do {
    r = call();
  } while (r < 0 && errno == EINTR);
  return r;
}

// open(2), never giving 0, 1 or 2: where those were closed, other code would write its messages into our file.
Fd open_file(int folder, const char* path, int flags, mode_t mode = 0) noexcept;

// The system's words for an errno value.
std::string system_reason(int error);

// Throws EVN_ERROR_IO: "cannot `what` 'path': " and the reason.
[[noreturn]] void fail_io(const char* what, const std::string& path, int error);

// Throws EVN_ERROR_IO if a file whose size is 0 gives bytes: the files of /proc say that they are regular and empty.
void refuse_sizeless(int fd, const std::string& name);

// Opens `location` for reading below the open folder, following no link. `location` has passed check_location. On failure the
// descriptor is negative and errno is set. The second way is for kernels without openat2.
Fd open_beneath(int folder, const std::string& location) noexcept;
Fd open_beneath_by_walk(int folder, const std::string& location) noexcept;

// Path of an open file as the system tells it now, whatever led to it; "" when the system does not say.
std::string path_of(int fd);

// A regular file that is open, as File. `path` is for messages.
std::shared_ptr<const File> make_file(Fd fd, const struct stat& st, const std::string& path);

// Reads a file of at most capacity - 1 bytes as text; -1 when it cannot be read.
int read_small_file(const char* path, char* buffer, std::size_t capacity) noexcept;

// Cores that the cgroup's CPU quota allows, rounded up; 0 when there is no quota. `membership` is /proc/self/cgroup and `root`
// the place where cgroups are mounted, except in tests.
int quota_cores(const char* membership, const char* root) noexcept;

}  // namespace evn::os
