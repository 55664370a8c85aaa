#include "base/alloc.h"

#include <cstdlib>

#include "base/fault.h"

namespace evn {

void* allocate_bytes(std::size_t size, std::size_t alignment) noexcept {
  if (fault_hit(Seam::kAlloc)) return nullptr;
  if (size == 0) size = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  void* p = nullptr;
  return posix_memalign(&p, alignment, size) == 0 ? p : nullptr;
}

void free_bytes(void* p) noexcept { std::free(p); }

}  // namespace evn
