#include "tests/api_fuzz/handles.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace evn::fuzz {
namespace {

constexpr std::size_t kShelf = 24;

std::atomic<void*> g_live[kKindCount][kShelf], g_stale[kKindCount][kShelf];

// Which runtime a handle belongs to, as far as is known.
std::mutex g_owners_mutex;
std::unordered_map<void*, void*> g_owners;

thread_local void* t_runtime = nullptr;

void* owner_of(void* handle) {
  const std::lock_guard<std::mutex> lock(g_owners_mutex);
  const auto it = g_owners.find(handle);
  return it == g_owners.end() ? nullptr : it->second;
}

bool is_of_no_runtime(Kind kind) { return kind == kind_evn_cancel || kind == kind_evn_queue; }

void* pick_live(Random& random, Kind kind) {
  void* handle = nullptr;
  for (int i = 0; i < 40; ++i) {
    handle = random.one_of(g_live[kind]).load();
    if (handle == nullptr) continue;
    void* const owner = owner_of(handle);
    if (t_runtime == nullptr) t_runtime = owner;
    if (owner == nullptr || owner == t_runtime) return handle;
  }
  return handle;
}

}  // namespace

evn_status release_handle(Kind kind, void* handle) {
  switch (kind) {
#define EVN_FUZZ_RELEASE(name, release) \
  case kind_##name:                     \
    return release(static_cast<name>(handle));
#include "calls_releases.inc"
#undef EVN_FUZZ_RELEASE
    default: return EVN_OK;
  }
}

void* pick_handle(Random& random, Kind kind) {
  const std::uint64_t way = random.below(100);
  if (way < 90) return pick_live(random, kind);
  if (way < 93) return random.one_of(g_stale[kind]).load();
  if (way < 95) return nullptr;
  if (way < 98) return random.one_of(g_live[random.below(kKindCount)]).load();
  return reinterpret_cast<void*>(random.chance(50) ? random.next() : random.below(1u << 30));
}

void keep_handle(Random& random, Kind kind, void* handle) {
  {
    const std::lock_guard<std::mutex> lock(g_owners_mutex);
    if (g_owners.size() > 200'000) g_owners.clear();
    g_owners[handle] = kind == kind_evn_runtime ? handle : is_of_no_runtime(kind) ? nullptr : t_runtime;
  }
  for (std::atomic<void*>& slot : g_live[kind]) {
    void* none = nullptr;
    if (slot.compare_exchange_strong(none, handle)) return;
  }
  void* const before = g_live[kind][random.below(kShelf)].exchange(handle);
  if (before == nullptr) return;
  release_handle(kind, before);
  g_stale[kind][random.below(kShelf)].store(before);
}

void release_handles() {
  for (int kind = kKindCount - 1; kind >= 0; --kind) {
    for (std::atomic<void*>& slot : g_live[kind]) {
      if (void* const handle = slot.exchange(nullptr)) release_handle(static_cast<Kind>(kind), handle);
    }
  }
}

evn_runtime runtime_of_call() { return static_cast<evn_runtime>(t_runtime); }
void begin_call(evn_runtime runtime) { t_runtime = runtime; }

}  // namespace evn::fuzz
