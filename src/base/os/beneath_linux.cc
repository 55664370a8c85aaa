// Files that a model names: relative locations inside the model's folder. The location is hostile, and so may be what lies in
// the folder: nothing is followed out of it, nothing but a plain file with a single name is read.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/os/beneath.h"
#include "base/os/files_linux.h"
#include "base/os/os.h"
#include "base/os/read_linux.h"

namespace evn::os {
namespace {

constexpr std::size_t kLongestLocation = 4095;
constexpr int kMostComponents = 64;

[[noreturn]] void refuse(const std::string& location, const char* why) {
  fail(EVN_ERROR_INVALID_MODEL, "external data location '%.200s' %s", location.c_str(), why);
}

// Form only; what the name stands for is the kernel's business.
void check_location(const std::string& location) {
  if (location.empty()) fail(EVN_ERROR_INVALID_MODEL, "an external data location is empty");
  if (location.size() > kLongestLocation) fail(EVN_ERROR_INVALID_MODEL, "an external data location has more than 4095 bytes");
  if (location.find('\0') != std::string::npos) refuse(location, "has a NUL byte in it");
  if (location.find('\\') != std::string::npos) refuse(location, "has a backslash in it");
  if (location.front() == '/') refuse(location, "is an absolute path");
  if (location.back() == '/') refuse(location, "names a folder");
  int components = 0;
  for (std::size_t begin = 0; begin <= location.size();) {
    const std::size_t end = std::min(location.find('/', begin), location.size());
    if (location.compare(begin, end - begin, "..") == 0) refuse(location, "leaves its folder");
    if (++components > kMostComponents) refuse(location, "has more than 64 components");
    begin = end + 1;
  }
}

// Errors that tell what the location is are the model's fault; the others are the system's.
[[noreturn]] void fail_open(const std::string& location, int error) {
  switch (error) {
    case ELOOP:
    case EXDEV: refuse(location, "goes through a link or leaves its folder");
    case ENOTDIR:
    case ENXIO:
    case ENODEV:
    case ENAMETOOLONG: refuse(location, "is not a regular file in its folder");
    default: fail(EVN_ERROR_IO, "cannot open external data '%.200s': %s", location.c_str(), system_reason(error).c_str());
  }
}

constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;

}  // namespace

Fd open_beneath_by_walk(int folder, const std::string& location) noexcept {
  Fd at(-1);
  char name[kLongestLocation + 1];
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(location.find('/', begin), location.size());
    const std::size_t n = location.copy(name, end - begin, begin);
    name[n] = '\0';
    const int parent = at.ok() ? at.get() : folder;
    if (end == location.size()) return open_file(parent, name, kReadFlags);
    if (n > 0) {
      Fd next = open_file(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
      if (!next.ok()) {
        // A link is no folder, which is what the system says; openat2 says that it is a link.
        struct stat status;
        const int error = errno;
        const bool is_link =
            error == ENOTDIR && ::fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
        errno = is_link ? ELOOP : error;
        return next;
      }
      at = std::move(next);
    }
    begin = end + 1;
  }
}

Fd open_beneath(int folder, const std::string& location) noexcept {
  struct open_how how = {};
  how.flags = kReadFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something was renamed during the lookup.
  for (int attempt = 0; attempt < 16; ++attempt) {
    Fd fd(static_cast<int>(io_call([&] { return ::syscall(SYS_openat2, folder, location.c_str(), &how, sizeof how); })));
    if (fd.ok() || (errno != EAGAIN && errno != ENOSYS && errno != EPERM && errno != EINVAL)) return fd;
    if (errno != EAGAIN) break;
  }
  return open_beneath_by_walk(folder, location);
}

std::string current_folder() {
  std::string path(256, '\0');
  for (;;) {
    if (::getcwd(path.data(), path.size()) != nullptr) {
      path.resize(path.find('\0'));
      return path;
    }
    if (errno != ERANGE || path.size() > (std::size_t{1} << 20)) return ".";
    path.resize(2 * path.size());
  }
}

void refuse_links_beneath(const std::string& folder, const std::string& location) {
  for (std::size_t begin = 0; begin < location.size();) {
    const std::size_t end = std::min(location.find('/', begin), location.size());
    struct stat st = {};
    const std::string part = folder + location.substr(0, end);
    if (io_call([&] { return ::lstat(part.c_str(), &st); }) != 0) return;
    if (S_ISLNK(st.st_mode)) {
      fail(EVN_ERROR_IO, "'%s' goes through a link, which must not be below '%s'", location.c_str(), folder.c_str());
    }
    begin = end + 1;
  }
}

FileBytes read_file_beneath(const std::string& folder, const std::string& location, std::uint64_t offset, std::uint64_t length,
                            std::uint64_t max_bytes, const LedgerPtr& ledger, MemoryClass cls) {
  check_location(location);
  Fd base = open_file(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY);
  if (!base.ok()) fail(EVN_ERROR_IO, "cannot open folder '%s': %s", folder.c_str(), system_reason(errno).c_str());
  Fd fd = open_beneath(base.get(), location);
  if (!fd.ok()) fail_open(location, errno);
  struct stat st = {};
  if (io_call([&] { return ::fstat(fd.get(), &st); }) != 0) fail_open(location, errno);
  if (!S_ISREG(st.st_mode)) refuse(location, "is not a regular file in its folder");
  if (st.st_nlink != 1) refuse(location, "has more than one name (hard links)");
  const auto size = static_cast<std::uint64_t>(st.st_size);
  if (offset > size) refuse(location, "is shorter than its offset");
  if (length == UINT64_MAX) length = size - offset;
  if (length > size - offset) refuse(location, "is shorter than its offset and length");
  if (length > max_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "external data '%.200s' has %llu bytes, the limit is %llu", location.c_str(),
                     static_cast<unsigned long long>(length), static_cast<unsigned long long>(max_bytes))
        .with_bytes(length, max_bytes);
  }
  return read_open_file(fd.get(), st, offset, length, location, ledger, cls);
}

}  // namespace evn::os
