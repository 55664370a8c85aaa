#include "runtime/objects/settings.h"

#include <algorithm>
#include <atomic>

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

std::uint64_t Settings::next_generation() noexcept {
  static std::atomic<std::uint64_t> latest{0};
  return latest.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool Settings::has(const Device* device) const {
  return std::any_of(devices.begin(), devices.end(), [device](const Named& d) { return d.device == device; });
}

}  // namespace evn
