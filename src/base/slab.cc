#include "base/slab.h"

#include "base/checked.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr std::size_t kAlignment = 64;
#if !defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLeastRoom = std::size_t{256} << 10;
#endif

}  // namespace

struct Slab::Block {
  std::shared_ptr<Slab> slab;
  std::size_t bytes = 0;
  MemoryClass cls = MemoryClass::kPacked;

  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (bytes != 0 && slab->ledger_ != nullptr) slab->ledger_->discharge(bytes, cls);
  }
};

std::size_t Slab::room_of(std::size_t bytes) { return align_up(bytes, kAlignment); }

std::shared_ptr<Slab> Slab::make(const LedgerPtr& ledger, std::size_t room) {
#if defined(__SANITIZE_ADDRESS__)
  static_cast<void>(ledger);
  static_cast<void>(room);
  return nullptr;
#else
  if (room < kLeastRoom || (ledger != nullptr && ledger->host_memory().host.allocate != nullptr)) return nullptr;
  void* const memory = os::map_pages(room, os::Touch::kDense);
  if (memory == nullptr) return nullptr;
  Slab* slab = nullptr;
  try {
    slab = new Slab(ledger, static_cast<char*>(memory), room);
  } catch (...) {
    os::unmap_pages(memory, room);
    throw;
  }
  return std::shared_ptr<Slab>(slab);
#endif
}

Slab::~Slab() { os::unmap_pages(memory_, size_); }

void Slab::touch(std::size_t end) noexcept {
  while (touched_ < end && size_ - touched_ >= os::kHugePageBytes) {
    const bool fast = os::touch_huge_page(memory_ + touched_);
    touched_ += os::kHugePageBytes;
    if (fast) continue;
    os::forbid_huge_pages(memory_, size_);
    touched_ = size_;
  }
}

std::shared_ptr<void> Slab::take(std::size_t bytes, MemoryClass cls) {
  auto block = std::make_shared<Block>();
  block->slab = shared_from_this();
  block->cls = cls;
  char* memory = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes == 0 || room_of(bytes) > size_ - next_) return nullptr;
    if (ledger_ != nullptr) ledger_->charge(bytes, cls);
    block->bytes = bytes;
    memory = memory_ + next_;
    next_ += room_of(bytes);
    touch(next_);
  }
  return std::shared_ptr<void>(std::move(block), memory);
}

}  // namespace evn
