#include "base/ledger.h"

#include <new>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/float_environment.h"
#include "base/os/os.h"

namespace evn {
namespace {

// Not under AddressSanitizer, which knows only its own.
bool in_pages(std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  static_cast<void>(bytes);
  return false;
#else
  return bytes >= HostMemory::kPagesFrom;
#endif
}

// Of blocks without a ledger, which the thread's heap counts.
constexpr std::align_val_t kHeapAlignment{64};

// Gives the memory back.
struct Charged {
  LedgerPtr ledger;
  std::size_t bytes = 0;
  std::size_t capacity = 0;
  MemoryClass cls = MemoryClass::kTensors;
  void* memory = nullptr;

  Charged() = default;
  Charged(const Charged&) = delete;
  Charged& operator=(const Charged&) = delete;
  ~Charged() {
    if (memory == nullptr) return;
    if (ledger != nullptr) {
      ledger->give(memory, bytes, capacity, cls);
    } else {
      ::operator delete(memory, kHeapAlignment);
    }
  }
};

[[noreturn]] void fail_refused(std::size_t bytes) {
  throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory for %zu bytes", bytes).with_bytes(bytes, 0);
}

}  // namespace

void* HostMemory::obtain(std::size_t bytes, std::size_t alignment) const noexcept {
  if (host.allocate == nullptr) return in_pages(bytes) ? os::map_pages(bytes, os::Touch::kDense) : allocate_bytes(bytes, alignment);
  if (fault_hit(Seam::kAlloc)) return nullptr;
  const HostFloatEnvironment hosts;
  return host.allocate(host.user, bytes > 0 ? bytes : 1, alignment);
}

bool HostMemory::gives_zeros(std::size_t bytes) const noexcept { return host.allocate == nullptr && in_pages(bytes); }

void HostMemory::give_back(void* memory, std::size_t bytes) const noexcept {
  if (host.allocate == nullptr) return in_pages(bytes) ? os::unmap_pages(memory, bytes) : free_bytes(memory);
  const HostFloatEnvironment hosts;
  host.free(host.user, memory, bytes > 0 ? bytes : 1);
}

void* Ledger::take(std::size_t bytes, MemoryClass cls, std::size_t* capacity) {
  charge(bytes, cls);
  void* const memory = host_memory().obtain(bytes, 64);
  if (memory == nullptr) {
    discharge(bytes, cls);
    fail_refused(bytes);
  }
  *capacity = bytes;
  return memory;
}

void Ledger::give(void* memory, std::size_t bytes, std::size_t /*capacity*/, MemoryClass cls) noexcept {
  host_memory().give_back(memory, bytes);
  discharge(bytes, cls);
}

std::shared_ptr<void> allocate_charged(const LedgerPtr& ledger, std::size_t bytes, MemoryClass cls) {
  auto c = std::make_shared<Charged>();
  c->ledger = ledger;
  c->bytes = bytes;
  c->cls = cls;
  c->memory = ledger != nullptr ? ledger->take(bytes, cls, &c->capacity) : ::operator new(bytes, kHeapAlignment);
  void* p = c->memory;
  return std::shared_ptr<void>(std::move(c), p);
}

}  // namespace evn
