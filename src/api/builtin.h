// The backends that the build found in src/backends: generated, by cmake/backends.cmake.
#pragma once

#include <span>
#include <vector>

#include "device/backend.h"

namespace evn {

// By name; the CPU is among them.
std::span<const Backend* const> builtin_backends();

// What the configuration knows of them.
inline std::vector<DeviceType> builtin_device_types() {
  std::vector<DeviceType> types;
  for (const Backend* backend : builtin_backends()) types.push_back(backend->type);
  return types;
}

}  // namespace evn
