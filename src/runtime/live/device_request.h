// What a configuration asks of a backend.
#pragma once

#include "config/config.h"
#include "device/backend.h"

namespace evn {

// The host opens the device, and attaches it.
inline bool is_attached(const DeviceConfig& device) { return device.settings.number("attached", 0) != 0; }

inline DeviceRequest request_of(const DeviceConfig& device) {
  DeviceRequest request;
  request.name = device.name;
  request.settings = device.settings;
  request.memory_limit = device.memory_limit;
  request.cache = {device.cache_limit, static_cast<TrimWhen>(device.trim)};
  return request;
}

}  // namespace evn
