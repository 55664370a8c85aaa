#include "api/handles.h"

#include "base/float_environment.h"

namespace evn {
namespace {

// Constant-initialized and never destroyed: zero pages until they are used, gone with the library.
HandleTable::Slot g_slots[1u << 18];

}  // namespace

constinit HandleTable g_handles(g_slots);

namespace {

constinit os::ForkedChild g_child{[]() noexcept { g_handles.begin_in_child(); }};

[[gnu::constructor]] void watch_forks() {
  g_handles.prepare_for_forks();
  os::call_in_children(g_child);
}

}  // namespace

evn_status release_handle(const void* handle, HandleKind kind) noexcept {
  if (handle == nullptr) return EVN_OK;
  const LibraryFloatEnvironment floats;
  return g_handles.release(handle, kind) ? EVN_OK : EVN_ERROR_INVALID_HANDLE;
}

void fail_to_pin(const void* handle, HandleKind kind, const char* name) {
  if (g_handles.is_left_by_fork(handle, kind)) {
    fail(EVN_ERROR_FORKED, "another thread was using the %s when the process forked", name);
  }
  fail(EVN_ERROR_INVALID_HANDLE, "the %s handle is not valid", name);
}

}  // namespace evn
