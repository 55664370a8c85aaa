// Files that a model names: relative locations inside the model's folder. The location is hostile, and so may be what lies in
// the folder: without allowed roots nothing is followed out of it, and nothing but a plain file with a single name is read.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/os/beneath.h"
#include "base/os/files_linux.h"
#include "base/os/os.h"

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

// Since Linux 5.6; headers of older systems have no name for it.
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

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

std::string path_of(int fd) {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  char path[kLongestLocation + 1];
  const ssize_t n = io_call([&] { return ::readlink(link, path, sizeof path); });
  return n <= 0 || static_cast<std::size_t>(n) == sizeof path || path[0] != '/' ? std::string()
                                                                                : std::string(path, static_cast<std::size_t>(n));
}

namespace {

// Returns true if the open file lies beneath one of the folders. A folder that does not exist allows nothing; a folder that cannot
// be looked at is an error only if no other one allows the file. *path: where the file lies.
bool lies_beneath(int fd, std::span<const std::string> roots, std::string* path) {
  *path = path_of(fd);
  if (path->empty()) fail(EVN_ERROR_IO, "cannot tell where a file lies: %s", system_reason(errno).c_str());
  const std::string* unknown = nullptr;
  int error = 0;
  for (const std::string& root : roots) {
    const Fd folder = open_file(AT_FDCWD, root.c_str(), O_PATH | O_DIRECTORY);
    std::string begin = folder.ok() ? path_of(folder.get()) : std::string();
    if (begin.empty()) {
      if (!folder.ok() && (errno == ENOENT || errno == ENOTDIR)) continue;
      error = errno;
      unknown = &root;
      continue;
    }
    if (begin.back() != '/') begin += '/';
    if (path->compare(0, begin.size(), begin) == 0) return true;
  }
  if (unknown != nullptr) fail_io("open allowed root", *unknown, error);
  return false;
}

// Opens for reading what a descriptor that only names a file (O_PATH) refers to.
Fd reopen(int fd) noexcept {
  char link[32];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return open_file(AT_FDCWD, link, kReadFlags & ~O_NOFOLLOW);
}

struct OpenedBeneath {
  Fd fd{-1};
  struct stat st = {};
  int error = 0;           // why it could not be opened
  bool has_names = false;  // it has several hard links, and lies beneath no root
  std::string outside;     // where links lead to, beneath no root
};

// First as a name alone, since to open a device may do something: what is beneath a root is opened for reading then.
void follow_links(int folder, const std::string& location, std::span<const std::string> roots, OpenedBeneath* o) {
  const Fd named = open_file(folder, location.c_str(), O_PATH);
  if (!named.ok()) {
    o->error = errno;
    return;
  }
  std::string path;
  if (!lies_beneath(named.get(), roots, &path)) {
    o->outside = path;
    return;
  }
  if (io_call([&] { return ::fstat(named.get(), &o->st); }) != 0) {
    o->error = errno;
  } else if (S_ISREG(o->st.st_mode)) {
    o->fd = reopen(named.get());
    o->error = o->fd.ok() ? 0 : errno;
  }
}

OpenedBeneath open_where_allowed(int folder, const std::string& location, std::span<const std::string> roots) {
  OpenedBeneath o;
  o.fd = open_beneath(folder, location);
  o.error = o.fd.ok() ? 0 : errno;
  if (!o.fd.ok() && (o.error == ELOOP || o.error == EXDEV) && !roots.empty()) {
    o.error = 0;
    follow_links(folder, location, roots, &o);
  }
  if (o.fd.ok() && io_call([&] { return ::fstat(o.fd.get(), &o.st); }) != 0) {
    o.error = errno;
    o.fd = Fd(-1);
  }
  if (o.fd.ok() && S_ISREG(o.st.st_mode) && o.st.st_nlink != 1) {
    std::string path;
    o.has_names = roots.empty() || !lies_beneath(o.fd.get(), roots, &path);
    if (o.has_names) o.outside = path;
  }
  return o;
}

}  // namespace

std::shared_ptr<const File> open_external(const std::string& folder, const std::string& location,
                                          std::span<const std::string> allowed_roots) {
  check_location(location);
  const Fd base = open_file(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY);
  if (!base.ok()) fail(EVN_ERROR_IO, "cannot open folder '%s': %s", folder.c_str(), system_reason(errno).c_str());
  OpenedBeneath o = open_where_allowed(base.get(), location, allowed_roots);
  if (o.error != 0) fail_open(location, o.error);
  if (o.has_names && allowed_roots.empty()) refuse(location, "has more than one name (hard links)");
  if (o.has_names || !o.outside.empty()) {
    fail(EVN_ERROR_INVALID_MODEL, "external data location '%.200s' leads to '%.200s', which is beneath none of the allowed roots",
         location.c_str(), o.outside.c_str());
  }
  if (!o.fd.ok() || !S_ISREG(o.st.st_mode)) refuse(location, "is not a regular file in its folder");
  return make_file(std::move(o.fd), o.st, location);
}

std::shared_ptr<const File> open_for_reading_beneath(const std::string& folder, const std::string& location,
                                                     std::span<const std::string> allowed_roots, std::uint64_t max_bytes) {
  const std::string path = folder + location;
  const Fd base = open_file(AT_FDCWD, folder.c_str(), O_PATH | O_DIRECTORY);
  if (!base.ok()) fail_io("open", folder, errno);
  OpenedBeneath o = open_where_allowed(base.get(), location, allowed_roots);
  if (o.error == ELOOP || o.error == EXDEV) {
    fail(EVN_ERROR_IO, "'%s' goes through a link, which must not be below '%s' without allowed_roots", location.c_str(),
         folder.c_str());
  }
  if (o.error != 0) fail_io("open", path, o.error);
  if (!o.fd.ok() && !o.outside.empty()) {
    fail(EVN_ERROR_IO, "'%s' leads to '%s', which is beneath none of the allowed roots", path.c_str(), o.outside.c_str());
  }
  if (!o.fd.ok() || !S_ISREG(o.st.st_mode)) fail(EVN_ERROR_IO, "'%s' is not a regular file", path.c_str());
  if (o.st.st_size == 0) refuse_sizeless(o.fd.get(), path);
  std::shared_ptr<const File> file = make_file(std::move(o.fd), o.st, path);
  if (file->size() <= max_bytes) return file;
  throw make_error(EVN_ERROR_LIMIT, "'%s' has %llu bytes, the limit is %llu", path.c_str(),
                   static_cast<unsigned long long>(file->size()), static_cast<unsigned long long>(max_bytes))
      .with_bytes(file->size(), max_bytes);
}

}  // namespace evn::os
