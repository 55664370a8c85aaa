// A memfd, which others open by /proc/PROCESS/fd; locks are those of open file descriptions (fcntl F_OFD_SETLK).
#include "base/os/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/fault.h"

namespace evn::os {
namespace {

constexpr std::size_t kHeadBytes = 4096;  // the key, and room up to a page

struct flock byte_lock(short type, std::uint32_t member) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(member);
  lock.l_len = 1;
  return lock;
}

}  // namespace

SharedMemory::~SharedMemory() { close(); }

void SharedMemory::close() noexcept {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  mapped_ = data_ = nullptr;
}

bool SharedMemory::map(std::size_t bytes) noexcept {
  if (fault_hit(Seam::kAlloc)) return false;
  void* const at = ::mmap(nullptr, bytes + kHeadBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) return false;
  mapped_ = static_cast<std::byte*>(at);
  data_ = mapped_ + kHeadBytes;
  mapped_bytes_ = bytes + kHeadBytes;
  return true;
}

bool SharedMemory::create(std::size_t bytes) noexcept {
  if (fault_hit(Seam::kIo)) return false;
  descriptor_ = ::memfd_create("evener", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  std::uint64_t key = 0;
  if (descriptor_ >= 0 && ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes + kHeadBytes)) == 0 &&
      ::fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
      ::getrandom(&key, sizeof key, GRND_NONBLOCK) == sizeof key && map(bytes)) {
    std::memcpy(mapped_, &key, sizeof key);
    return true;
  }
  close();
  return false;
}

bool SharedMemory::open(const SharedMemoryName& name, std::size_t bytes) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%u", name.process, name.descriptor);
  struct stat found = {};
  if (fault_hit(Seam::kIo)) return false;
  // The process of that number may be another one, and the file any: it is closed unless it has the size and the key.
  descriptor_ = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ >= 0 && ::fstat(descriptor_, &found) == 0 && S_ISREG(found.st_mode) &&
      found.st_size == static_cast<off_t>(bytes + kHeadBytes) && map(bytes)) {
    if (std::memcmp(mapped_, &name.key, sizeof name.key) == 0) return true;
  }
  close();
  return false;
}

SharedMemoryName SharedMemory::name() const {
  SharedMemoryName name{static_cast<std::uint32_t>(::getpid()), static_cast<std::uint32_t>(descriptor_), 0};
  std::memcpy(&name.key, mapped_, sizeof name.key);
  return name;
}

bool SharedMemory::lock(std::uint32_t member) noexcept {
  struct flock lock = byte_lock(F_WRLCK, member);
  return ::fcntl(descriptor_, F_OFD_SETLK, &lock) == 0;
}

bool SharedMemory::is_locked(std::uint32_t member) const noexcept {
  struct flock lock = byte_lock(F_WRLCK, member);
  return ::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace evn::os
