// evn_cancel_*.
#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

extern "C" {

evn_status evn_cancel_create(evn_cancel* cancel, evn_error* error) {
  return guarded(error, [&] {
    require(cancel != nullptr, "cancel");
    *cancel = static_cast<evn_cancel>(make_handle(std::make_shared<CancelToken>()));
  });
}

// A signal's handler may call this: no locks, and no memory is given up.
evn_status evn_cancel_request(evn_cancel cancel) {
  HandleObject* const object = g_handles.pin(cancel, HandleKind::kCancel);
  if (object == nullptr) return EVN_ERROR_INVALID_HANDLE;
  static_cast<HandleObjectOf<CancelPtr>*>(object)->value->requested.store(true, std::memory_order_relaxed);
  g_handles.unpin_in_signal(cancel);
  return EVN_OK;
}

evn_status evn_cancel_release(evn_cancel cancel) { return release_handle(cancel, HandleKind::kCancel); }

}  // extern "C"
