// The composition root: the only place that names the backends.
#pragma once

#include <span>

#include "device/device.h"

namespace evn {

std::span<const Backend* const> builtin_backends();

}  // namespace evn
