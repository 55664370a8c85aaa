// What a configuration answers about itself; config_reader.cc makes it from YAML.
#include "config/config.h"

#include <algorithm>
#include <functional>

namespace evn {

const char* BatchingConfig::why_wrong() const {
  if (buckets.empty()) return nullptr;
  if (mask.empty()) return "buckets need a mask";
  if (buckets.front() < 1) return "buckets are lengths of 1 and more";
  const bool rising = std::adjacent_find(buckets.begin(), buckets.end(), std::greater_equal<>()) == buckets.end();
  return rising ? nullptr : "buckets must be in rising order";
}

const DeviceConfig* Config::find_device(const std::string& name) const {
  const auto found = std::find_if(devices.begin(), devices.end(), [&](const DeviceConfig& d) { return d.name == name; });
  return found == devices.end() ? nullptr : &*found;
}

}  // namespace evn
