// What the configuration knows of a kind of device: its name, `type`, and the options that it has besides those of every device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/setting.h"

namespace evn {

struct DeviceOption {
  Setting setting;       // its name is the key below devices.NAME: "threads", "match", "match.vendor"
  bool selects = false;  // says which physical device is meant: two names of one device may differ in it
};

struct DeviceType {
  const char* name;  // "cpu", "opencl"
  std::span<const DeviceOption> options = {};
};

// Options that were given, by the names of their rows, which live as long as the library.
class DeviceSettings {
 public:
  void set(const char* name, SettingValue value);
  void set_number(const char* name, std::uint64_t number) { set(name, {.number = number, .text = std::to_string(number)}); }
  void set_text(const char* name, std::string text) { set(name, {.text = std::move(text)}); }

  // nullptr: it was not given.
  const SettingValue* find(std::string_view name) const;
  std::uint64_t number(std::string_view name, std::uint64_t fallback) const;
  std::string text(std::string_view name, const char* fallback) const;

 private:
  std::vector<std::pair<const char*, SettingValue>> values_;
};

}  // namespace evn
