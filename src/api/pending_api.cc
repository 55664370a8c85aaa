// Functions that are declared and not there yet.
#include "api/barrier.h"
#include "evener/request.h"
#include "evener/state.h"

namespace {

evn_status pending(evn_error* error) {
  return evn::guarded(error, [] { evn::fail(EVN_ERROR_UNSUPPORTED, "not there yet"); });
}

}  // namespace

extern "C" {

evn_status evn_device_set_memory_limit(evn_device, uint64_t, evn_error* error) { return pending(error); }
evn_status evn_tensor_create_view(evn_tensor, uint64_t, const int64_t*, uint32_t, evn_tensor*, evn_error* error) {
  return pending(error);
}
evn_status evn_tensor_get_strings(evn_tensor, char*, size_t, size_t*, size_t, size_t*, evn_error* error) { return pending(error); }
evn_status evn_session_get_memory_stats(evn_session, evn_session_memory_stats*, evn_error* error) { return pending(error); }
evn_status evn_session_get_statistics(evn_session, evn_format, char*, size_t, size_t*, evn_error* error) { return pending(error); }
evn_status evn_runtime_get_statistics(evn_runtime, evn_format, char*, size_t, size_t*, evn_error* error) { return pending(error); }
evn_status evn_state_create(evn_session, const evn_state_pair*, uint32_t, const evn_state_options*, evn_state*, evn_error* error) {
  return pending(error);
}
evn_status evn_state_reset(evn_state, evn_error* error) { return pending(error); }
evn_status evn_state_fork(evn_state, evn_state*, evn_error* error) { return pending(error); }
evn_status evn_state_length(evn_state, uint32_t, int64_t*, evn_error* error) { return pending(error); }
evn_status evn_state_truncate(evn_state, int64_t, evn_error* error) { return pending(error); }
evn_status evn_state_save(evn_state, void*, size_t, size_t*, evn_error* error) { return pending(error); }
evn_status evn_state_restore(evn_state, const void*, size_t, evn_error* error) { return pending(error); }
evn_status evn_state_describe(evn_state, evn_format, char*, size_t, size_t*, evn_error* error) { return pending(error); }
evn_status evn_state_release(evn_state) { return EVN_OK; }

}  // extern "C"
