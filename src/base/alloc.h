// The allocation seam: every byte that the library takes from the system passes allocate_bytes, the library's operator new
// included (api/library/new.cc).
#pragma once

#include <cstddef>

namespace evn {

// Returns memory aligned to `alignment` (a power of two >= 8), or nullptr. Zero bytes give a valid pointer.
void* allocate_bytes(std::size_t size, std::size_t alignment) noexcept;
void free_bytes(void* p) noexcept;

}  // namespace evn
