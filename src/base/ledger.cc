#include "base/ledger.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/os/os.h"

namespace evn {
namespace {

// From here on blocks are whole pages of their own, so that what is given back is given back to the system at once: the C library
// may keep it. Not under AddressSanitizer, which knows only its own.
constexpr std::size_t kPagesFrom = std::size_t{512} << 10;
bool in_pages(std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  static_cast<void>(bytes);
  return false;
#else
  return bytes >= kPagesFrom;
#endif
}

// Gives bytes and charge back together, whichever of them has been taken so far.
struct Charged {
  LedgerPtr ledger;
  std::size_t bytes = 0;
  MemoryClass cls = MemoryClass::kTensors;
  bool charged = false;
  void* memory = nullptr;
  HostMemory host;

  Charged() = default;
  Charged(const Charged&) = delete;
  Charged& operator=(const Charged&) = delete;
  ~Charged() {
    if (memory != nullptr) host.give_back(memory, bytes);
    if (charged) ledger->discharge(bytes, cls);
  }
};

}  // namespace

void* HostMemory::obtain(std::size_t bytes, std::size_t alignment) const noexcept {
  if (host.allocate == nullptr) return in_pages(bytes) ? os::map_pages(bytes, os::Touch::kDense) : allocate_bytes(bytes, alignment);
  return fault_hit(Seam::kAlloc) ? nullptr : host.allocate(host.user, bytes > 0 ? bytes : 1, alignment);
}

void HostMemory::give_back(void* memory, std::size_t bytes) const noexcept {
  if (host.allocate == nullptr) return in_pages(bytes) ? os::unmap_pages(memory, bytes) : free_bytes(memory);
  host.free(host.user, memory, bytes > 0 ? bytes : 1);
}

std::shared_ptr<void> allocate_charged(const LedgerPtr& ledger, std::size_t bytes, MemoryClass cls) {
  auto c = std::make_shared<Charged>();
  c->ledger = ledger;
  c->bytes = bytes;
  c->cls = cls;
  if (ledger != nullptr) {
    ledger->charge(bytes, cls);
    c->charged = true;
  }
  if (ledger != nullptr) c->host = ledger->host_memory();
  c->memory = c->host.obtain(bytes, 64);
  if (c->memory == nullptr) {
    throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory for %zu bytes", bytes).with_bytes(bytes, 0);
  }
  void* p = c->memory;
  return std::shared_ptr<void>(std::move(c), p);
}

}  // namespace evn
