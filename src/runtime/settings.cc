#include "runtime/settings.h"

#include <algorithm>

namespace evn {

Device* Settings::find(const std::string& name, std::string* why) const {
  for (const Named& d : devices) {
    if (d.name == name) return d.device;
  }
  for (const Absent& a : absent) {
    if (a.name == name) *why = a.why;
  }
  return nullptr;
}

bool Settings::has(const Device* device) const {
  return std::any_of(devices.begin(), devices.end(), [device](const Named& d) { return d.device == device; });
}

}  // namespace evn
