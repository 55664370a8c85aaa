#include "api/handles.h"

#include <atomic>
#include <mutex>

namespace evn {
namespace {

static_assert(sizeof(void*) == 8, "handles are 32 bits of generation and 32 of slot");

constexpr std::uint32_t kSlots = 1u << 18;

// state: generation (32) | released (1) | kind (7) | references (24). The table itself holds one reference until the release; a
// free slot has none. The low word changes only by the counted operations below.
using State = std::uint64_t;
constexpr State kReference = 1;
constexpr State kReferences = (1u << 24) - 1;
constexpr State kReleased = 1u << 31;
constexpr int kKindShift = 24;
constexpr State kKindMask = 0x7full << kKindShift;

constexpr std::uint32_t generation(State s) { return static_cast<std::uint32_t>(s >> 32); }

struct Slot {
  std::atomic<State> state{0};
  HandleObject* object = nullptr;
  std::uint32_t next_free = 0;  // slot + 1
};

// Constant-initialized and never destroyed: zero pages until they are used, gone with the library.
Slot g_slots[kSlots];
constinit std::mutex g_mutex;  // guards the free list
std::uint32_t g_free = 0;      // slot + 1
std::uint32_t g_used = 0;      // slots ever used

struct Decoded {
  Slot* slot;
  std::uint32_t generation;
};

bool decode(const void* handle, Decoded* d) noexcept {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  const auto index = static_cast<std::uint32_t>(value) - 1u;
  if (index >= kSlots) return false;
  *d = {&g_slots[index], static_cast<std::uint32_t>(value >> 32)};
  return true;
}

// Drops one reference; the last one destroys the object and frees the slot.
void drop(Slot* slot) noexcept {
  const State before = slot->state.fetch_sub(kReference, std::memory_order_acq_rel);
  if ((before & kReferences) != 1) return;
  delete slot->object;
  slot->object = nullptr;
  const std::lock_guard<std::mutex> lock(g_mutex);
  // After the last generation the slot is retired: with the first one again, the handles of long ago would be valid.
  if (generation(before) == UINT32_MAX) return;
  slot->state.store(static_cast<State>(generation(before) + 1) << 32, std::memory_order_release);
  slot->next_free = g_free;
  g_free = static_cast<std::uint32_t>(slot - g_slots) + 1;
}

bool live(State s, std::uint32_t want, HandleKind kind) {
  return generation(s) == want && (s & kReferences) != 0 && (s & kReleased) == 0 &&
         (s & kKindMask) >> kKindShift == static_cast<State>(kind);
}

}  // namespace

void* add_handle(std::unique_ptr<HandleObject> object) {
  std::uint32_t index;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (g_free != 0) {
      index = g_free - 1;
      g_free = g_slots[index].next_free;
    } else if (g_used < kSlots) {
      index = g_used++;
    } else {
      fail(EVN_ERROR_LIMIT, "all %u handles are in use", kSlots);
    }
  }
  Slot& slot = g_slots[index];
  const std::uint32_t gen = generation(slot.state.load(std::memory_order_relaxed));
  const State kind = static_cast<State>(object->kind()) << kKindShift;
  slot.object = object.release();
  slot.state.store(static_cast<State>(gen) << 32 | kind | kReference, std::memory_order_release);
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(gen) << 32 | (index + 1));
}

HandleObject* pin_handle(const void* handle, HandleKind kind) noexcept {
  Decoded d;
  if (!decode(handle, &d)) return nullptr;
  State s = d.slot->state.load(std::memory_order_relaxed);
  do {
    if (!live(s, d.generation, kind)) return nullptr;
  } while (!d.slot->state.compare_exchange_weak(s, s + kReference, std::memory_order_acquire, std::memory_order_relaxed));
  return d.slot->object;
}

void unpin_handle(const void* handle) noexcept {
  Decoded d;
  if (decode(handle, &d)) drop(d.slot);
}

void age_next_handle(std::uint32_t generation) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const std::uint32_t index = g_free != 0 ? g_free - 1 : g_used;
  if (index < kSlots) g_slots[index].state.store(static_cast<State>(generation) << 32, std::memory_order_release);
}

bool release_handle(const void* handle, HandleKind kind) noexcept {
  Decoded d;
  if (!decode(handle, &d)) return false;
  State s = d.slot->state.load(std::memory_order_relaxed);
  do {
    if (!live(s, d.generation, kind)) return false;
  } while (!d.slot->state.compare_exchange_weak(s, s | kReleased, std::memory_order_acq_rel, std::memory_order_relaxed));
  drop(d.slot);
  return true;
}

}  // namespace evn
