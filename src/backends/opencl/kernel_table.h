// All kernels of the backend, a family for each file of them.
#pragma once

#include <span>

#include "device/kernel.h"

namespace evn {

std::span<const KernelFamily* const> opencl_kernel_families();

}  // namespace evn
