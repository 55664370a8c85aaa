#include "base/ledger.h"

#include "base/alloc.h"
#include "base/error.h"

namespace evn {
namespace {

// Gives bytes and charge back together, whichever of them has been taken so far.
struct Charged {
  LedgerPtr ledger;
  std::size_t bytes = 0;
  MemoryClass cls = MemoryClass::kTensors;
  bool charged = false;
  void* memory = nullptr;

  Charged() = default;
  Charged(const Charged&) = delete;
  Charged& operator=(const Charged&) = delete;
  ~Charged() {
    free_bytes(memory);
    if (charged) ledger->discharge(bytes, cls);
  }
};

}  // namespace

std::shared_ptr<void> allocate_charged(const LedgerPtr& ledger, std::size_t bytes, MemoryClass cls) {
  auto c = std::make_shared<Charged>();
  c->ledger = ledger;
  c->bytes = bytes;
  c->cls = cls;
  if (ledger != nullptr) {
    ledger->charge(bytes, cls);
    c->charged = true;
  }
  c->memory = allocate_bytes(bytes, 64);
  if (c->memory == nullptr) {
    throw make_error(EVN_ERROR_OUT_OF_MEMORY, "the system has no memory for %zu bytes", bytes).with_bytes(bytes, 0);
  }
  void* p = c->memory;
  return std::shared_ptr<void>(std::move(c), p);
}

}  // namespace evn
