// The module of trainers (train_module.h), opened when it is first needed, and what the library gives it.
#pragma once

#include "device/train_module.h"

namespace evn {

// Throws EVN_ERROR_UNSUPPORTED, saying why, where the module is missing or of another version. Thread-safe.
const evn_train_module_table& train_module();

}  // namespace evn
