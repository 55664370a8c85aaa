// The library, as the module calls it. Errors of both are base/error.h's, of which the module has its own copy; none is thrown
// across.
#pragma once

#include "base/guarded.h"
#include "device/train_module.h"

namespace evn_train {

using evn::error_of;
using evn::fail;

// Set by the library when it opens the module.
extern const evn_train_host* g_host;
inline const evn_api& api() { return *g_host->api; }

// Calls a function of the library whose last parameter is the error, and throws what it reports.
template <typename F, typename... Args>
void call(F function, Args... args) {
  evn_error error = EVN_ERROR_INIT;
  const evn_status status = function(args..., &error);
  if (status == EVN_OK) return;
  throw evn::make_error(status, "%s", error.message)
      .with_node(error.node)
      .with_device(error.device)
      .with_bytes(error.bytes_requested, error.bytes_available);
}

}  // namespace evn_train
