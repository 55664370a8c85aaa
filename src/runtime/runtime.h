// A runtime: the configuration, the opened devices, the log. Devices are opened when the configuration names them or when they
// are first asked for; they live as long as the runtime.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/config.h"
#include "device/device.h"
#include "ops/custom.h"

namespace evn {

struct RuntimeOptions {
  Config config;
  int thread_count = 0;              // 0: from the configuration, else all usable cores
  std::uint64_t cpu_memory_limit = 0;  // 0: from the configuration
  std::string cache_dir;             // "": no cache of compiled programs
  LogSink log;
  HostExecutor executor;
  evn_allocator allocator{};
  std::span<const Backend* const> backends;  // static
};

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  // Opens the CPU and the configured devices. Throws EVN_ERROR_DEVICE_UNAVAILABLE, EVN_ERROR_CONFIG.
  explicit Runtime(RuntimeOptions options);

  const Config& config() const { return options_.config; }
  const LogSink& log() const { return options_.log; }

  Device& cpu() const { return *devices_[0]; }
  std::size_t device_count() const;
  // nullptr when there is none of that index.
  Device* device_at(std::size_t index) const;
  // By a configured name, "cpu", "gpu[:n]" or "opencl[:n]"; opens what is not open. Throws EVN_ERROR_DEVICE_UNAVAILABLE listing
  // the devices that there are.
  Device* find_device(const std::string& name);
  // The device of a configured name; nullptr and *why when it is optional and absent.
  Device* configured_device(const std::string& name, std::string* why) const;

  std::string describe_devices(evn_format format) const;

  // The host's own; models find them while they load.
  OperatorRegistry& operators() { return operators_; }

 private:
  struct Absent {
    std::string name;
    std::string why;
  };
  const Backend* backend(const std::string& type) const;
  void open_configured(const DeviceConfig& device);
  Device* open(const Backend& backend, DeviceRequest request);
  std::string list_names() const;

  OperatorRegistry operators_;  // goes last
  RuntimeOptions options_;
  mutable std::mutex mutex_;  // guards devices_ while runs go on
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<Absent> absent_;
};

}  // namespace evn
