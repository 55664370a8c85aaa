// Functions that a build leaves out (features.txt); generated code calls this.
#pragma once

#include "evener/evener.h"

namespace evn {

// Fills `error`, which is nullable, with EVN_ERROR_UNSUPPORTED, the function, and the option that leaves it out.
evn_status refuse_left_out(const char* function, const char* option, evn_error* error) noexcept;

}  // namespace evn
