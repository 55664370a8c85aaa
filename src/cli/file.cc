#include "cli/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "cli/failure.h"

namespace evn::cli {
namespace {

constexpr std::size_t kLargestWrite = 1u << 30;

// A new file in the target's folder, removed unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const std::string& target) : target_(target), name_(target + ".XXXXXX") {
    fd_ = ::mkstemp(name_.data());
    if (fd_ < 0) {
      name_.clear();
      fail_with(errno);
    }
    const mode_t mask = ::umask(0);  // mkstemp's 0600 is for secrets; results get the mode that any new file gets
    ::umask(mask);
    ::fchmod(fd_, 0666 & ~mask);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  void write(const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_, at, std::min(size, kLargestWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_with(errno);
      at += n;
      size -= static_cast<std::size_t>(n);
    }
  }

  void become_target() {
    if (::fsync(fd_) != 0) fail_with(errno);
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0 && errno != EINTR) fail_with(errno);
    if (::rename(name_.c_str(), target_.c_str()) != 0) fail_with(errno);
    name_.clear();
  }

 private:
  [[noreturn]] void fail_with(int error) const {
    fail(kExitFailure, "%s: cannot be written: %s", target_.c_str(), std::generic_category().message(error).c_str());
  }

  const std::string& target_;
  std::string name_;
  int fd_ = -1;
};

// Makes the new name last over a power cut; a file system that cannot do so has still taken the file.
void sync_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const int fd = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void write_file(const std::string& path, std::string_view start, const void* data, std::size_t size) {
  {
    Temporary temporary(path);
    temporary.write(start.data(), start.size());
    temporary.write(data, size);
    temporary.become_target();
  }
  sync_folder(path);
}

}  // namespace evn::cli
