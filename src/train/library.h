// The library, as trainers and loaders use it: by the C API, and by what host.h has beside it.
#pragma once

#include "base/guarded.h"
#include "evener/api.h"

namespace evn_train {

using evn::error_of;
using evn::fail;

// Calls a function of the C API whose last parameter is the error, and throws what it reports.
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
