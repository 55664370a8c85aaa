#include "cli/file.h"

#include <fcntl.h>
#include <sys/file.h>
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
constexpr int kMostNames = 1000;  // of temporary files, that are tried

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Returns true for .evn-PID-NUMBER.tmp, as the library calls its temporary files too.
bool is_temporary_name(const std::string& name) {
  unsigned long pid = 0, number = 0;
  int end = 0;
  return std::sscanf(name.c_str(), ".evn-%lu-%lu.tmp%n", &pid, &number, &end) == 2 && static_cast<std::size_t>(end) == name.size();
}

// Returns true if the path still names the open file.
bool is_same_file(int fd, const std::string& path) {
  struct stat open = {}, named = {};
  if (::fstat(fd, &open) != 0 || ::lstat(path.c_str(), &named) != 0) return false;
  return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Removes temporary files of processes that were killed while they wrote: a process that writes one has it locked.
void remove_abandoned(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (!is_temporary_name(at->path().filename().string()) || !at->is_regular_file(ignored)) continue;
    const int fd = ::open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    const bool is_abandoned = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_same_file(fd, at->path().string());
    if (is_abandoned) ::unlink(at->path().c_str());
    ::close(fd);
  }
}

// A new file in the target's folder, removed unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const std::string& target) : target_(target) {
    remove_abandoned(folder_of(target));
    for (int number = 0; number < kMostNames; ++number) {
      name_ = folder_of(target) + "/.evn-" + std::to_string(::getpid()) + "-" + std::to_string(number) + ".tmp";
      fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno == EEXIST) continue;
      if (fd_ < 0) break;
      // Before the file is locked, another process may take it for an abandoned one. Without locks no process does so.
      const bool is_taken = ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (!is_taken && is_same_file(fd_, name_)) return;
      ::close(fd_);
      errno = EEXIST;
    }
    fd_ = -1;
    name_.clear();
    fail_with(errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!name_.empty()) ::unlink(name_.c_str());
    if (fd_ >= 0) ::close(fd_);
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
    if (::fsync(fd_) != 0 || ::rename(name_.c_str(), target_.c_str()) != 0) fail_with(errno);
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
  const int fd = ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void write_file(const std::string& path, std::string_view start, const void* data, std::size_t size) {
  struct stat st = {};
  if (::stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))  // a device must not become a file because somebody names it
    fail(kExitFailure, "%s: cannot be written: it is not a regular file", path.c_str());
  {
    Temporary temporary(path);
    temporary.write(start.data(), start.size());
    temporary.write(data, size);
    temporary.become_target();
  }
  sync_folder(path);
}

}  // namespace evn::cli
