// The library's own operator new and delete, hidden inside the shared library: containers of ours and of the libraries that are
// linked in pass the allocation seam, and the memory limit counts them (base/heap.h).
#include <cstddef>
#include <new>

#include "base/heap.h"

namespace {

[[noreturn]] void refuse(const evn::Error& why) {
  evn::HeapRefused refused;
  refused.error = why;
  throw refused;
}

void* take_or_throw(std::size_t size, std::size_t alignment) {
  void* const block = evn::take_block(size, alignment, &refuse);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void* take_or_null(std::size_t size, std::size_t alignment) noexcept { return evn::take_block(size, alignment, nullptr); }

constexpr std::size_t kDefault = alignof(std::max_align_t);

constexpr std::size_t number(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void* operator new(std::size_t n) { return take_or_throw(n, kDefault); }
void* operator new[](std::size_t n) { return take_or_throw(n, kDefault); }
void* operator new(std::size_t n, std::align_val_t a) { return take_or_throw(n, number(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return take_or_throw(n, number(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take_or_null(n, kDefault); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take_or_null(n, kDefault); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take_or_null(n, number(a)); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take_or_null(n, number(a)); }
void operator delete(void* p) noexcept { evn::free_block(p, kDefault); }
void operator delete[](void* p) noexcept { evn::free_block(p, kDefault); }
void operator delete(void* p, std::size_t) noexcept { evn::free_block(p, kDefault); }
void operator delete[](void* p, std::size_t) noexcept { evn::free_block(p, kDefault); }
void operator delete(void* p, std::align_val_t a) noexcept { evn::free_block(p, number(a)); }
void operator delete[](void* p, std::align_val_t a) noexcept { evn::free_block(p, number(a)); }
void operator delete(void* p, std::size_t, std::align_val_t a) noexcept { evn::free_block(p, number(a)); }
void operator delete[](void* p, std::size_t, std::align_val_t a) noexcept { evn::free_block(p, number(a)); }
void operator delete(void* p, const std::nothrow_t&) noexcept { evn::free_block(p, kDefault); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { evn::free_block(p, kDefault); }
void operator delete(void* p, std::align_val_t a, const std::nothrow_t&) noexcept { evn::free_block(p, number(a)); }
void operator delete[](void* p, std::align_val_t a, const std::nothrow_t&) noexcept { evn::free_block(p, number(a)); }
