// The configuration of a runtime at one moment, with the devices that its names mean. It never changes: a reconfiguration makes
// another, and sessions keep the one that they were placed by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/config.h"

namespace evn {

class Device;

struct Settings {
  struct Named {
    std::string name;
    Device* device;
  };
  struct Absent {
    std::string name;
    std::string why;
  };

  Config config;
  std::vector<Named> devices;    // of `devices:` in the configuration, the CPU first
  std::vector<Absent> absent;    // optional ones that are not there
  std::uint64_t generation = 0;  // tells the settings of a process apart

  // The device of a configured name; nullptr: there is none, and *why where it is optional and absent.
  Device* find(const std::string& name, std::string* why) const;
  bool has(const Device* device) const;
  static std::uint64_t next_generation() noexcept;
};
using SettingsPtr = std::shared_ptr<const Settings>;

}  // namespace evn
