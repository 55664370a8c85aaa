// Functions of features that a build lacks (features.txt); generated code calls this.
#pragma once

#include "evener/evener.h"

namespace evn {

// Fills `error`, which is nullable, with EVN_ERROR_UNSUPPORTED, the function and the feature.
evn_status refuse_left_out(const char* function, const char* feature, evn_error* error) noexcept;

}  // namespace evn
