// Reading and writing whole files on Linux. Paths here are the host's own; locations that a model names are in beneath_linux.cc.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>

#include "base/cancel.h"
#include "base/error.h"
#include "base/os/files_linux.h"
#include "base/os/new_files.h"
#include "base/os/os.h"
#include "base/os/read_linux.h"

namespace evn::os {
namespace {

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A temporary file is locked (flock) before it has its name until it has been renamed. One that can be locked belongs to a process
// that has ended, on this machine or on another one that shares the folder.
constexpr const char kTemporaryPrefix[] = ".evn-", kTemporarySuffix[] = ".tmp";

bool is_same_file(int fd, int folder, const char* name) {
  struct stat open = {}, named = {};
  return ::fstat(fd, &open) == 0 && ::fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

// Removes the temporary file unless it has been renamed.
struct Temporary {
  std::string path;
  bool present = true;
  Fd lock{-1};
  ~Temporary() {
    if (present) ::unlink(path.c_str());
  }
};

// Returns true for .evn-PID-NUMBER.tmp.
bool is_temporary_name(std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kTemporarySuffix)) return false;
  name.remove_prefix(sizeof kTemporaryPrefix - 1);
  name.remove_suffix(sizeof kTemporarySuffix - 1);
  const std::size_t dash = name.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

// Removes temporary files that processes have left which were killed while they wrote. What cannot be removed stays.
void remove_abandoned(const std::string& folder) noexcept {
  DIR* const list = ::opendir(folder.c_str());
  if (list == nullptr) return;
  while (const dirent* entry = ::readdir(list)) {
    if (!is_temporary_name(entry->d_name)) continue;
    const Fd fd(::openat(::dirfd(list), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd.ok() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    struct stat st = {};
    if (::fstat(fd.get(), &st) == 0 && S_ISREG(st.st_mode) && is_same_file(fd.get(), ::dirfd(list), entry->d_name))
      ::unlinkat(::dirfd(list), entry->d_name, 0);
  }
  ::closedir(list);
}

std::string temporary_beside(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  char name[64];
  std::snprintf(name, sizeof name, "/%s%ld-%u%s", kTemporaryPrefix, static_cast<long>(::getpid()), counter.fetch_add(1),
                kTemporarySuffix);
  return parent_of(path) + name;
}

void write_all(int fd, const std::string& path, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = io_call([&] { return ::write(fd, at, std::min(size, kLargestTransfer)); });
    if (n <= 0) fail_io("write", path, n < 0 ? errno : ENOSPC);
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

// Writes what `file` is to have, and closes it. The lock stays.
void fill(Fd fd, const NewFile& file, Temporary* temporary) {
  Fd lock(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  temporary->lock = std::move(lock);
  for (const Piece& p : file.pieces) write_all(fd.get(), file.path, p.data, p.size);
  if (io_call([&] { return ::fsync(fd.get()); }) != 0) fail_io("write", file.path, errno);
  if (!fd.close_checked()) fail_io("write", file.path, errno);
}

constexpr int kMostNames = 100;  // that are tried

// Writes a file that has no name until it is whole: nothing is left of it if the process is killed meanwhile. Returns false if the
// system cannot do so.
bool write_nameless(const NewFile& file, Temporary* temporary) {
  Fd fd = open_file(AT_FDCWD, parent_of(file.path).c_str(), O_WRONLY | O_TMPFILE, 0666);
  if (!fd.ok() && errno == EIO) fail_io("create a file beside", file.path, errno);
  if (!fd.ok() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  char name[64];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd.get());
  if (::access(name, F_OK) != 0) return false;
  fill(std::move(fd), file, temporary);
  if (!temporary->lock.ok()) return false;
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", temporary->lock.get());
  for (int attempt = 0; attempt < kMostNames; ++attempt) {
    temporary->path = temporary_beside(file.path);
    const auto link = [&] { return ::linkat(AT_FDCWD, name, AT_FDCWD, temporary->path.c_str(), AT_SYMLINK_FOLLOW); };
    if (io_call(link) == 0) return temporary->present = true;
    if (errno == EIO) fail_io("create a file beside", file.path, errno);
    if (errno != EEXIST) return false;
  }
  return false;
}

void write_named(const NewFile& file, Temporary* temporary) {
  for (int attempt = 0; attempt < kMostNames; ++attempt) {
    temporary->path = temporary_beside(file.path);
    Fd fd = open_file(AT_FDCWD, temporary->path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (!fd.ok() && errno == EEXIST) continue;
    if (!fd.ok()) fail_io("create a file beside", file.path, errno);
    // Where the file system has no locks, nobody removes what is abandoned. A process that does so may just have taken this file
    // for such a one.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (!is_same_file(fd.get(), AT_FDCWD, temporary->path.c_str())) continue;
    temporary->present = true;
    return fill(std::move(fd), file, temporary);
  }
  fail_io("create a file beside", file.path, EEXIST);
}

}  // namespace

void fail_io(const char* what, const std::string& path, int error) {
  fail(EVN_ERROR_IO, "cannot %s '%s': %s", what, path.c_str(), system_reason(error).c_str());
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

bool Fd::close_checked() noexcept {
  const int fd = fd_;
  fd_ = -1;
  const int r = ::close(fd);  // closed even where it fails
  if (fault_hit(Seam::kIo)) {
    errno = EIO;
    return false;
  }
  return r == 0 || errno == EINTR;
}

Fd open_file(int folder, const char* path, int flags, mode_t mode) noexcept {
  Fd fd(io_call([&] { return ::openat(folder, path, flags | O_CLOEXEC | O_NOCTTY, mode); }));
  if (fd.ok() && fd.get() <= 2) {
    Fd higher(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
    return higher;
  }
  return fd;
}

std::string system_reason(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);
}

int read_small_file(const char* path, char* buffer, std::size_t capacity) noexcept {
  Fd fd = open_file(AT_FDCWD, path, O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return -1;
  std::size_t size = 0;
  while (size + 1 < capacity) {
    const ssize_t n = io_call([&] { return ::read(fd.get(), buffer + size, capacity - 1 - size); });
    if (n < 0) return -1;
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  buffer[size] = '\0';
  return static_cast<int>(size);
}

void refuse_sizeless(int fd, const std::string& name) {
  char byte;
  const ssize_t n = io_call([&] { return ::pread(fd, &byte, 1, 0); });
  if (n < 0) fail_io("read", name, errno);
  if (n > 0) fail(EVN_ERROR_IO, "'%s' is not a regular file: its size is 0, but reading it gives bytes", name.c_str());
}

void read_bytes(int fd, std::uint64_t offset, void* to, std::size_t size, const std::string& name) {
  constexpr auto kReadPiece = static_cast<std::size_t>(kWorkPerLook / 2 * kBytesPerWork);
  for (std::size_t done = 0; done < size;) {
    char* const at = static_cast<char*>(to) + done;
    const std::size_t want = std::min(size - done, kReadPiece);
    cancellation_point(static_cast<std::int64_t>(want) / kBytesPerWork + 1);
    const ssize_t n = io_call([&] { return ::pread(fd, at, want, static_cast<off_t>(offset + done)); });
    if (n < 0) fail_io("read", name, errno);
    if (n == 0) fail(EVN_ERROR_IO, "'%s' became shorter while it was read", name.c_str());
    done += static_cast<std::size_t>(n);
  }
}

FileBytes read_open_file(int fd, const struct stat& before, std::uint64_t offset, std::uint64_t length, const std::string& name,
                         const LedgerPtr& ledger, MemoryClass cls) {
  const auto size = static_cast<std::size_t>(length);
  std::shared_ptr<void> bytes = allocate_charged(ledger, size, cls);
  read_bytes(fd, offset, bytes.get(), size, name);
  if (before.st_size == 0) refuse_sizeless(fd, name);
  struct stat after = {};
  if (io_call([&] { return ::fstat(fd, &after); }) != 0) fail_io("read", name, errno);
  if (after.st_size != before.st_size || after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
      after.st_mtim.tv_nsec != before.st_mtim.tv_nsec) {
    fail(EVN_ERROR_IO, "'%s' changed while it was read", name.c_str());
  }
  return {std::move(bytes), size};
}

FileBytes read_file(const std::string& path, std::uint64_t max_bytes, const LedgerPtr& ledger, MemoryClass cls) {
  if (path.find('\0') != std::string::npos) fail(EVN_ERROR_IO, "a path has a NUL byte in it");
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  Fd fd = open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) fail_io("open", path, errno);
  struct stat st = {};
  if (io_call([&] { return ::fstat(fd.get(), &st); }) != 0) fail_io("open", path, errno);
  if (!S_ISREG(st.st_mode)) fail(EVN_ERROR_IO, "'%s' is not a regular file", path.c_str());
  const auto size = static_cast<std::uint64_t>(st.st_size);
  if (size > max_bytes) {
    throw make_error(EVN_ERROR_LIMIT, "'%s' has %llu bytes, the limit is %llu", path.c_str(), static_cast<unsigned long long>(size),
                     static_cast<unsigned long long>(max_bytes))
        .with_bytes(size, max_bytes);
  }
  return read_open_file(fd.get(), st, 0, size, path, ledger, cls);
}

void write_files_atomically(std::span<const NewFile> files) {
  std::deque<Temporary> temporaries;
  for (const NewFile& file : files) {
    const std::string& path = file.path;
    if (path.find('\0') != std::string::npos) fail(EVN_ERROR_IO, "a path has a NUL byte in it");
    // A device must not become a file because somebody names it.
    struct stat there = {};
    if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
      fail(EVN_ERROR_IO, "'%s' is not a regular file", path.c_str());
    Temporary& temporary = temporaries.emplace_back();
    temporary.present = false;
    remove_abandoned(parent_of(path));
    if (!write_nameless(file, &temporary)) write_named(file, &temporary);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    if (io_call([&] { return ::rename(temporaries[i].path.c_str(), path.c_str()); }) != 0) fail_io("replace", path, errno);
    temporaries[i].present = false;
    if (i + 1 < files.size()) continue;
    // The names themselves must survive a power cut too.
    Fd folder = open_file(AT_FDCWD, parent_of(path).c_str(), O_RDONLY | O_DIRECTORY);
    if (!folder.ok() || io_call([&] { return ::fsync(folder.get()); }) != 0) fail_io("save the folder of", path, errno);
  }
}

void write_file_atomically(const std::string& path, std::span<const Piece> pieces) {
  const NewFile file{path, {pieces.begin(), pieces.end()}};
  write_files_atomically({&file, 1});
}

void remove_file(const std::string& path) noexcept { ::unlink(path.c_str()); }

long process_id() noexcept { return ::getpid(); }

bool make_folders(const std::string& path) noexcept {
  if (path.empty() || path.size() >= 4096 || path.find('\0') != std::string::npos) return false;
  char buffer[4096];
  std::memcpy(buffer, path.c_str(), path.size() + 1);
  for (std::size_t i = 1; i <= path.size(); ++i) {
    if (buffer[i] != '/' && buffer[i] != '\0') continue;
    const char kept = buffer[i];
    buffer[i] = '\0';
    struct stat st = {};
    const bool there = io_call([&] { return ::mkdir(buffer, 0700); }) == 0 || (::stat(buffer, &st) == 0 && S_ISDIR(st.st_mode));
    if (!there) return false;
    buffer[i] = kept;
  }
  return true;
}

}  // namespace evn::os
