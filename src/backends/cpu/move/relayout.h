// The kernel that writes a value in another layout (device/layout.h).
#pragma once

#include "device/kernel.h"

namespace evn {

extern const Kernel cpu_relayout_kernel;

}  // namespace evn
