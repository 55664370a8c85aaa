#include "api/handle_table.h"

#include <new>

#include "base/error.h"

namespace evn {
namespace {

static_assert(sizeof(void*) == 8, "handles are 32 bits of generation and 32 of slot");

constexpr std::uint64_t kReference = 1;
constexpr std::uint64_t kReferences = (1u << 24) - 1;
constexpr std::uint64_t kReleased = 1u << 31;
constexpr int kKindShift = 24;
constexpr std::uint64_t kKindMask = 0x3full << kKindShift;
constexpr std::uint64_t kLeft = 1u << 30;

// Objects of which any number of threads do different things at once, each behind locks of its own, do not lose by one that has
// gone.
bool is_for_one(HandleKind kind) {
  return kind != HandleKind::kRuntime && kind != HandleKind::kDevice && kind != HandleKind::kModel && kind != HandleKind::kCancel;
}

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local const OwnPin* t_own_pins = nullptr;

HandleTable::Slot* HandleTable::slot_of(const void* handle) const noexcept {
  const auto index = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle)) - 1u;
  return index < slots_.size() ? &slots_[index] : nullptr;
}

bool HandleTable::is_live(std::uint64_t state, const void* handle, HandleKind kind) const noexcept {
  return generation(state) == static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle) >> 32) &&
         (state & kReferences) != 0 && (state & kReleased) == 0 &&
         (state & kKindMask) >> kKindShift == static_cast<std::uint64_t>(kind);
}

// Drops one reference; the last one destroys the object and frees the slot.
void HandleTable::drop(Slot* slot) noexcept {
  const std::uint64_t before = slot->state.fetch_sub(kReference, std::memory_order_acq_rel);
  if ((before & kReferences) == 1) retire(slot);
}

// Destroys the object of a slot without references, and frees the slot.
void HandleTable::retire(Slot* slot) noexcept {
  delete slot->object;
  slot->object = nullptr;
  const std::uint64_t before = slot->state.load(std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  // After the last generation the slot is never used again: with the first one again, the handles of long ago would be valid.
  if (generation(before) == UINT32_MAX) return;
  slot->state.store(((before >> 32) + 1) << 32, std::memory_order_release);
  slot->next_free = free_;
  free_ = static_cast<std::uint32_t>(slot - slots_.data()) + 1;
}

void HandleTable::retire_orphans() noexcept {
  for (std::uint32_t next = orphans_.exchange(0, std::memory_order_acquire); next != 0;) {
    Slot* const slot = &slots_[next - 1];
    next = slot->next_free;
    retire(slot);
  }
}

void HandleTable::unpin_in_signal(const void* handle) noexcept {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return;
  if ((slot->state.fetch_sub(kReference, std::memory_order_acq_rel) & kReferences) != 1) return;
  const auto number = static_cast<std::uint32_t>(slot - slots_.data()) + 1;
  std::uint32_t first = orphans_.load(std::memory_order_relaxed);
  do {
    slot->next_free = first;
  } while (!orphans_.compare_exchange_weak(first, number, std::memory_order_release, std::memory_order_relaxed));
}

void* HandleTable::add(std::unique_ptr<HandleObject> object) {
  if (orphans_.load(std::memory_order_relaxed) != 0) retire_orphans();
  std::uint32_t index;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_ != 0) {
      index = free_ - 1;
      free_ = slots_[index].next_free;
    } else if (used_ < slots_.size()) {
      index = used_++;
    } else {
      fail(EVN_ERROR_LIMIT, "all %zu handles are in use", slots_.size());
    }
  }
  Slot& slot = slots_[index];
  const std::uint64_t before = slot.state.load(std::memory_order_relaxed);
  const std::uint64_t kind = static_cast<std::uint64_t>(object->kind()) << kKindShift;
  slot.object = object.release();
  slot.state.store(before >> 32 << 32 | kind | kReference, std::memory_order_release);
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(generation(before)) << 32 | (index + 1));
}

HandleObject* HandleTable::pin(const void* handle, HandleKind kind) noexcept {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return nullptr;
  std::uint64_t s = slot->state.load(std::memory_order_relaxed);
  do {
    if (!is_live(s, handle, kind) || (s & kLeft) != 0) return nullptr;
  } while (!slot->state.compare_exchange_weak(s, s + kReference, std::memory_order_acquire, std::memory_order_relaxed));
  return slot->object;
}

void HandleTable::unpin(const void* handle) noexcept {
  if (Slot* const slot = slot_of(handle)) drop(slot);
}

bool HandleTable::release(const void* handle, HandleKind kind) noexcept {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return false;
  std::uint64_t s = slot->state.load(std::memory_order_relaxed);
  do {
    if (!is_live(s, handle, kind)) return false;
  } while (!slot->state.compare_exchange_weak(s, s | kReleased, std::memory_order_acq_rel, std::memory_order_relaxed));
  drop(slot);
  return true;
}

bool HandleTable::is_left_by_fork(const void* handle, HandleKind kind) const noexcept {
  const Slot* const slot = slot_of(handle);
  if (slot == nullptr) return false;
  const std::uint64_t s = slot->state.load(std::memory_order_relaxed);
  return is_live(s, handle, kind) && (s & kLeft) != 0;
}

void HandleTable::prepare_for_forks() noexcept {
  alignas(os::HeldOverForks) static std::byte held[sizeof(os::HeldOverForks)];  // never destroyed
  new (held) os::HeldOverForks(mutex_);
}

void HandleTable::begin_in_child() noexcept {
  for (std::uint32_t i = 0; i < used_; ++i) {
    Slot& slot = slots_[i];
    const std::uint64_t s = slot.state.load(std::memory_order_relaxed);
    const std::uint64_t pins = (s & kReferences) - ((s & kReferences) != 0 && (s & kReleased) == 0 ? 1 : 0);
    if (pins == 0 || !is_for_one(static_cast<HandleKind>((s & kKindMask) >> kKindShift))) continue;
    std::uint64_t own = 0;
    for (const OwnPin* p = t_own_pins; p != nullptr; p = p->outer) own += slot_of(p->handle) == &slot ? 1 : 0;
    if (pins > own) slot.state.store(s | kLeft, std::memory_order_relaxed);
  }
}

}  // namespace evn
