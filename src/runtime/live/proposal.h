// A configuration on its way to be a runtime's: its devices are open, and nothing has changed as yet.
#pragma once

#include <vector>

#include "runtime/objects/runtime.h"

namespace evn {

// Made by one thread at a time for a runtime. What it has changed that shows is taken back in its destructor, unless it was
// adopted.
class Proposal {
 public:
  Proposal(Runtime& runtime, Config config);
  ~Proposal();
  Proposal(const Proposal&) = delete;
  Proposal& operator=(const Proposal&) = delete;

  // Opens the devices that the configuration names and that are not open, and raises limits of memory where its are higher. Throws
  // EVN_ERROR_CONFIG, also where an open device cannot be as it says; EVN_ERROR_DEVICE_UNAVAILABLE.
  void open();
  // By which sessions can be made then.
  SettingsPtr settings() const { return settings_; }

  // Throws EVN_ERROR_OUT_OF_MEMORY where devices hold more than they may have under the new configuration.
  void check_limits() const;
  // Makes the settings the runtime's. Throws std::bad_alloc, and has changed nothing then.
  void adopt();

 private:
  struct Limit {
    Device* device;
    std::uint64_t before, wanted;
    int line;
  };

  void check_names() const;
  void check_cpus() const;
  void open_cpu();
  void open(const DeviceConfig& device);
  void open_attached(const DeviceConfig& device, const Backend& backend);
  void name(const DeviceConfig& configured, Device* device);
  void note(Runtime::Opened& opened, const DeviceConfig& wanted, const Backend& backend);
  const Config& config() const { return settings_->config; }

  Runtime& runtime_;
  const std::shared_ptr<Settings> settings_;
  std::vector<Limit> limits_;
  bool adopted_ = false;
};

}  // namespace evn
