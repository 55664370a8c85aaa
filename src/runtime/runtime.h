// A runtime: the configuration, the opened devices, the log. Devices are opened when the configuration names them or when they
// are first asked for; they live as long as the runtime. A physical device is opened once, whatever names it has.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/user_data.h"
#include "config/config.h"
#include "device/backend.h"
#include "ops/custom.h"
#include "runtime/cost/cost_table.h"
#include "runtime/request/dispatcher.h"
#include "runtime/request/run_statistics.h"

namespace evn {

class ArenaStores;

struct RuntimeOptions {
  Config config;
  int thread_count = 0;                // 0: from the configuration, else all usable cores
  std::uint64_t cpu_memory_limit = 0;  // 0: from the configuration
  std::string cache_dir;               // "": no cache of compiled programs
  LogSink log;
  HostExecutor executor;
  HostPost post;
  evn_allocator allocator{};
  std::span<const Backend* const> backends;  // static
};

// What the host gave with the callbacks of a runtime. Members go in reverse order, which the header promises.
struct RuntimeUsers {
  UserData ended, allocator, log_sink, log, post, parallel;
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
  // Throws EVN_ERROR_FORKED where a device that this process has from its parent cannot be used: asks the device, in children only.
  static void require_not_forked(Device& device);
  // By a configured name, or by a device type or an alias of one, with or without a number: "cpu", "gpu", "opencl:1"; opens what is
  // not open under any name. Throws EVN_ERROR_DEVICE_UNAVAILABLE listing the devices that there are.
  Device* find_device(const std::string& name);
  // A device of the backend `type` that the host has opened. Its name is one that the configuration says is attached, or one that
  // means nothing yet. Throws EVN_ERROR_UNSUPPORTED (no such backend, or nothing can be attached to it), EVN_ERROR_INVALID_ARGUMENT
  // (the name, or objects that do not fit together), EVN_ERROR_WRONG_STATE (the device is open).
  Device* attach(const std::string& type, const std::string& name, const NativeObjects& objects, std::uint64_t memory_limit);
  // The device of a configured name; nullptr and *why when it is optional and absent.
  Device* configured_device(const std::string& name, std::string* why) const;

  std::string describe_devices(evn_format format) const;

  // For the host's data, once nothing can fail any more.
  RuntimeUsers& users() { return users_; }

  RunScheduler& scheduler() { return scheduler_; }
  RequestDispatcher& dispatcher() { return *dispatcher_; }
  StatisticsList& statistics() { return statistics_; }
  const StatisticsList& statistics() const { return statistics_; }

  // What steps and copies cost on the devices.
  CostTables& costs() { return costs_; }

  // What sessions keep for runs to come.
  const std::shared_ptr<ArenaStores>& arenas() const { return arenas_; }

  // The host's own; models find them while they load.
  OperatorRegistry& operators() { return operators_; }

 private:
  struct Absent {
    std::string name;
    std::string why;
  };
  struct Opened {
    const Backend* backend;
    const void* identity;            // nullptr: of a backend whose devices have none
    const DeviceConfig* configured;  // nullptr: not by the configuration
    Device* device;
  };
  struct Name {
    std::string name;
    Device* device;
  };
  const Backend* backend(const std::string& type) const;
  // The backend with the alias; nullptr: there is none.
  const Backend* find_alias(const std::string& name, const DeviceAlias** alias) const;
  void open_configured(const DeviceConfig& device);
  // The device of the request; opens it where that has not been done. `configured`: what asks for it. `keep_name`: so that who asks
  // by this name again need not ask the driver.
  Device* open(const Backend& backend, DeviceRequest request, const DeviceConfig* configured, bool keep_name);
  void name_device(std::string name, Device* device);
  Device* open_new(const Backend& backend, const DeviceRequest& request, const NativeObjects* attached = nullptr);
  void complete(DeviceRequest& request);
  void require_free_name(const std::string& name) const;
  void check_same_settings(const Opened& opened, const DeviceConfig& second) const;
  std::string list_names() const;

  RuntimeUsers users_;          // goes last
  OperatorRegistry operators_;  // of what is used
  RuntimeOptions options_;
  const std::shared_ptr<ArenaStores> arenas_;  // pools have it too
  CostTables costs_;
  RunScheduler scheduler_;
  StatisticsList statistics_;
  Mutex opening_;  // one thread opens at a time; guards opened_
  std::vector<Opened> opened_;
  mutable std::mutex mutex_;  // guards devices_ and names_ while runs go on
  const os::HeldOverForks held_{mutex_};
  std::vector<std::shared_ptr<Device>> devices_;
  std::vector<Name> names_;                        // of devices that are open, other than their own
  std::vector<Absent> absent_;                     // guarded as they are: attach takes from it
  std::unique_ptr<RequestDispatcher> dispatcher_;  // goes first
};

}  // namespace evn
