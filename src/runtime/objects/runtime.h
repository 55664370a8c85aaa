// A runtime: the configuration, the opened devices, the log. Devices are opened when the configuration names them or when they
// are first asked for; they live as long as the runtime. A physical device is opened once, whatever names it has.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/user_data.h"
#include "config/config.h"
#include "device/backend.h"
#include "ops/custom.h"
#include "runtime/objects/cost_table.h"
#include "runtime/objects/live_sessions.h"
#include "runtime/objects/run_statistics.h"
#include "runtime/objects/settings.h"

namespace evn {

class ArenaStore;
class ArenaStores;
class DriverProbe;
class RequestDispatcher;
class WeightPagers;

// The host's way to have a task run later.
struct HostPost {
  evn_post post = nullptr;
  void* user = nullptr;
};

struct RuntimeOptions {
  Config config;                       // the first
  int thread_count = 0;                // 0: from the configuration, else all usable cores
  std::uint64_t cpu_memory_limit = 0;  // 0: from the configuration
  std::string cache_dir;               // "": no cache of compiled programs
  ProbeConfig probe{"", 0};            // what is "" or 0 in it is the configuration's
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
  ~Runtime();

  // The settings of now; a reconfiguration makes others (live/proposal.h).
  SettingsPtr settings() const;
  const LogSink& log() const { return options_.log; }
  // True if the host has given its own threads to compute on: the library then starts none.
  bool has_executor() const { return options_.executor.parallel_for != nullptr; }

  Device& cpu() const { return *cpu_; }
  std::size_t device_count() const;
  // nullptr when there is none of that index.
  Device* device_at(std::size_t index) const;
  // Throws EVN_ERROR_FORKED where a device that this process has from its parent cannot be used: asks the device, in children only.
  static void require_not_forked(Device& device);
  // By a configured name, or by a device type or an alias of one, with or without a number: "cpu", "gpu", "opencl:1"; opens what is
  // not open under any name. Throws EVN_ERROR_DEVICE_UNAVAILABLE listing the devices that there are.
  Device* find_device(const std::string& name) { return find_device(name, settings()); }
  Device* find_device(const std::string& name, const SettingsPtr& settings);
  // The device of a configured name, or of one by which it was opened; nullptr, and *why when it is optional and absent.
  Device* known_device(const std::string& name, const Settings& settings, std::string* why) const;
  // Devices that a search may place nodes on: the CPU, and those that the settings name or that were asked for by other names.
  std::vector<Device*> devices_for(const Settings& settings) const;

  // A command has failed as on a device that is lost. Asks the device for a small copy; where that fails too, or nothing comes of
  // it for seconds, the device is lost from now on. Returns whether it is; waits no longer than `stop` says.
  bool examine(Device& device, const Error& failure, const StopCondition& stop);
  // How many devices have been lost.
  std::uint64_t lost_devices() const { return lost_devices_.load(std::memory_order_acquire); }

  // The names of those that nothing is to be placed on now: they are lost, or in quarantine.
  std::string devices_out() const;

  // Sessions that a reconfiguration places anew.
  LiveSessions& live() { return live_; }
  // A device of the backend `type` that the host has opened. Its name is one that the configuration says is attached, or one that
  // means nothing yet. Throws EVN_ERROR_UNSUPPORTED (no such backend, or nothing can be attached to it), EVN_ERROR_INVALID_ARGUMENT
  // (the name, or objects that do not fit together), EVN_ERROR_WRONG_STATE (the device is open).
  Device* attach(const std::string& type, const std::string& name, const NativeObjects& objects, std::uint64_t memory_limit);

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
  // Packed weights of models under a memory limit, which may be dropped.
  const std::shared_ptr<WeightPagers>& weight_pagers() const { return pagers_; }
  // The arenas of all sessions whose configuration has them share these. `budget`: of the first who asks.
  std::shared_ptr<ArenaStore> shared_arenas(std::uint64_t budget);

  // What the pool of the device keeps for later, from now on.
  void set_cache_policy(Device& device, const CachePolicy& policy);

  // A run is under way from one call to the other.
  void begin_run() noexcept { runs_.fetch_add(1, std::memory_order_relaxed); }
  void end_run() noexcept;

  // The host's own; models find them while they load.
  OperatorRegistry& operators() { return operators_; }

 private:
  friend class Proposal;
  struct Opened {
    const Backend* backend;
    const void* identity;                    // nullptr: of a backend whose devices have none
    std::optional<DeviceConfig> configured;  // what the last settings that name it say of it; none: no settings did
    std::optional<DeviceConfig> proposed;    // what settings say that are not yet those of the runtime
    Device* device;
    std::shared_ptr<Device> unpublished;  // null: devices_ has it
  };
  struct Name {
    std::string name;
    Device* device;
  };
  const Backend* backend(const std::string& type) const;
  // Why the backend's devices are not used; "": they are. Probes its drivers the first time, where that is wanted.
  std::string why_hidden(const Backend& backend) const;
  void require_shown(const Backend& backend, const std::string& device) const;
  std::vector<DeviceListing> list(const Backend& backend, std::string* why) const;
  // The backend with the alias; nullptr: there is none.
  const Backend* find_alias(const std::string& name, const DeviceAlias** alias) const;
  // With opening_ held.
  Opened* find_opened(const Backend& backend, const DeviceRequest& request, const void** identity);
  Opened& open_new(const Backend& backend, const void* identity, DeviceRequest request, const NativeObjects* attached = nullptr);
  Device* publish(Opened& opened);
  void note_asked_for(const Settings& settings, Device* device);
  Device* open_by_name(const Backend& backend, DeviceRequest request, bool keep_name);
  void name_device(std::string name, Device* device);
  // Whether find_device takes the name for a kind of device.
  bool means_device(const std::string& name) const;
  void require_free_name(const std::string& name) const;
  std::string list_names() const;

  RuntimeUsers users_;          // goes last
  OperatorRegistry operators_;  // of what is used
  RuntimeOptions options_;
  const std::shared_ptr<ArenaStores> arenas_;   // pools have it too
  const std::shared_ptr<WeightPagers> pagers_;  // the same
  std::atomic<std::uint32_t> runs_{0};          // that are under way
  std::atomic<bool> trims_idle_{false};         // some device asks for it
  CostTables costs_;
  RunScheduler scheduler_;
  StatisticsList statistics_;
  Mutex opening_;  // one thread opens at a time; guards opened_
  std::vector<Opened> opened_;
  mutable std::mutex mutex_;  // guards what follows, up to settings_, while runs go on
  const os::HeldOverForks held_{mutex_};
  std::vector<std::shared_ptr<Device>> devices_;  // the CPU first; none is ever removed
  std::vector<Name> names_;                       // by which devices were asked for, other than their own and those of the settings
  std::vector<Device*> asked_for_;                // by names that are not those of the settings
  SettingsPtr settings_;
  Device* cpu_ = nullptr;  // set by the constructor, so that it is read without a lock
  std::atomic<std::uint64_t> lost_devices_{0};
  LiveSessions live_;
  const std::unique_ptr<DriverProbe> probe_;
  std::unique_ptr<RequestDispatcher> dispatcher_;  // goes first
  std::shared_ptr<ArenaStore> shared_arenas_;      // but for this, which has memory of the devices
};

}  // namespace evn
