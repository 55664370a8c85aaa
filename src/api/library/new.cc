// The library's own operator new and delete, hidden inside the shared library: containers of ours and of the libraries that are
// linked in pass the allocation seam.
#include <cstddef>
#include <new>

#include "base/alloc.h"

namespace {

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* p = evn::allocate_bytes(size, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

constexpr std::size_t kDefault = alignof(std::max_align_t);

}  // namespace

void* operator new(std::size_t n) { return allocate_or_throw(n, kDefault); }
void* operator new[](std::size_t n) { return allocate_or_throw(n, kDefault); }
void* operator new(std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return evn::allocate_bytes(n, kDefault); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return evn::allocate_bytes(n, kDefault); }
void operator delete(void* p) noexcept { evn::free_bytes(p); }
void operator delete[](void* p) noexcept { evn::free_bytes(p); }
void operator delete(void* p, std::size_t) noexcept { evn::free_bytes(p); }
void operator delete[](void* p, std::size_t) noexcept { evn::free_bytes(p); }
void operator delete(void* p, std::align_val_t) noexcept { evn::free_bytes(p); }
void operator delete[](void* p, std::align_val_t) noexcept { evn::free_bytes(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { evn::free_bytes(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { evn::free_bytes(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { evn::free_bytes(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { evn::free_bytes(p); }
