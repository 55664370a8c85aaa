// Names of statuses, for texts that the library writes itself.
#pragma once

#include "evener/evener.h"

namespace evn {

// "EVN_ERROR_IO"; "EVN_ERROR_UNKNOWN" for a number that is no status. Static storage.
const char* status_name(evn_status status);

// True for the values of evn_status. Callbacks of the host may return any number.
bool is_status(evn_status status);

}  // namespace evn
