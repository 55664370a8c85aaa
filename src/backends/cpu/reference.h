// The operators' own reference code as kernels of rank 0, so that a CPU device runs every operator that has one.
#pragma once

#include "device/kernel.h"

namespace evn {

extern const Kernel cpu_reference_kernel;

}  // namespace evn
