#include "core/device_type.h"

namespace evn {

void DeviceSettings::set(const char* name, SettingValue value) {
  for (auto& [known, old] : values_) {
    if (std::string_view(known) == name) return void(old = std::move(value));
  }
  values_.emplace_back(name, std::move(value));
}

const SettingValue* DeviceSettings::find(std::string_view name) const {
  for (const auto& [known, value] : values_) {
    if (known == name) return &value;
  }
  return nullptr;
}

std::uint64_t DeviceSettings::number(std::string_view name, std::uint64_t fallback) const {
  const SettingValue* const value = find(name);
  return value != nullptr ? value->number : fallback;
}

std::string DeviceSettings::text(std::string_view name, const char* fallback) const {
  const SettingValue* const value = find(name);
  return value != nullptr ? value->text : fallback;
}

}  // namespace evn
