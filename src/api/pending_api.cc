// Functions that are declared and not there yet.
#include "api/barrier.h"
#include "evener/request.h"

namespace {

evn_status pending(evn_error* error) {
  return evn::guarded(error, [] { evn::fail(EVN_ERROR_UNSUPPORTED, "not there yet"); });
}

}  // namespace

extern "C" {

evn_status evn_runtime_session(evn_runtime, const char*, evn_session*, evn_error* error) { return pending(error); }

}  // extern "C"
