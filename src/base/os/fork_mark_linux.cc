// Pages that are zero in a forked child (MADV_WIPEONFORK, since Linux 4.14).
#include <sys/mman.h>

#include "base/os/fork_mark.h"
#include "base/os/os.h"

namespace evn::os {
namespace {

constinit const std::uint32_t g_none = 1;

}  // namespace

ForkMark::ForkMark() noexcept : word_(&g_none) {
  void* const page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kPageBytes);
    return;
  }
  auto* const word = static_cast<std::uint32_t*>(page);
  *word = 1;
  word_ = word;
}

ForkMark::~ForkMark() {
  if (word_ != &g_none) ::munmap(const_cast<std::uint32_t*>(word_), kPageBytes);
}

}  // namespace evn::os
