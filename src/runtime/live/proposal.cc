#include "runtime/live/proposal.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/live/device_request.h"
#include "runtime/lower/pass_list.h"
#include "runtime/placement/named_nodes.h"

namespace evn {
namespace {

std::string shown(const Setting& setting, const SettingValue* value) {
  if (value == nullptr) return setting.fallback != nullptr ? setting.fallback : "";
  std::string text = value->text;
  for (const std::string& one : value->texts) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::shared_ptr<Settings> make_settings(Config config) {
  auto settings = std::make_shared<Settings>();
  settings->config = std::move(config);
  settings->generation = Settings::next_generation();
  return settings;
}

// Calls `differ` with the key and both texts of each option that does not only say which device is meant, where these differ.
template <typename F>
void compare_options(const Backend& backend, const DeviceConfig& first, const DeviceConfig& second, F&& differ) {
  for (const DeviceOption& option : backend.type.options) {
    const Setting& setting = option.setting;
    if (option.selects || setting.type == SettingType::kMap) continue;
    const SettingValue* const a = first.settings.find(setting.name);
    const SettingValue* const b = second.settings.find(setting.name);
    const bool numbers = setting.type >= SettingType::kInteger && setting.type <= SettingType::kBoolean;
    if (numbers && a != nullptr && b != nullptr && a->number == b->number) continue;  // written differently, perhaps
    const std::string left = shown(setting, a), right = shown(setting, b);
    if (left != right) differ(setting.name, left, right);
  }
}

std::string bytes_text(std::uint64_t limit) { return limit == UINT64_MAX ? "none" : std::to_string(limit); }
std::string trim_text(const DeviceConfig& d) { return d.trim == 0 ? "never" : d.trim == 1 ? "idle" : "always"; }
std::string precision_text(const DeviceConfig& d) {
  return d.precision == Precision::kDefault ? "none" : precision_name(d.precision);
}
std::string products_text(const DeviceConfig& d) { return d.products == Products::kDefault ? "none" : products_name(d.products); }

// One device that a configuration gives two names has one cap, one precision, one library of products, and one value of each
// option.
void check_same_settings(const Config& config, const Backend& backend, const Device& device, const DeviceConfig& first,
                         const DeviceConfig& second) {
  const auto check = [&](const char* key, const std::string& a, const std::string& b) {
    if (a == b) return;
    throw make_error(EVN_ERROR_CONFIG,
                     "%s:%d: devices %s (line %d) and %s are one device, \"%s\", and have one %s: %s says %s, %s says %s",
                     config.source.c_str(), second.line, first.name.c_str(), first.line, second.name.c_str(),
                     device.traits().description.c_str(), key, first.name.c_str(), a.c_str(), second.name.c_str(), b.c_str())
        .with_device(second.name.c_str());
  };
  check("memory_limit", bytes_text(first.memory_limit), bytes_text(second.memory_limit));
  check("cache_limit", bytes_text(first.cache_limit), bytes_text(second.cache_limit));
  check("trim", trim_text(first), trim_text(second));
  check("precision", precision_text(first), precision_text(second));
  check("products", products_text(first), products_text(second));
  compare_options(backend, first, second, check);
}

// An open device keeps the options that it was opened with.
void check_unchanged(const Config& config, const Backend& backend, const Device& device, const DeviceConfig& before,
                     const DeviceConfig& wanted) {
  const auto refuse = [&](const char* key, const std::string& has, const std::string& asked) {
    throw make_error(EVN_ERROR_CONFIG, "%s:%d: device %s is open with %s %s, and cannot have %s in this runtime",
                     config.source.c_str(), wanted.line, wanted.name.c_str(), key, has.empty() ? "unset" : has.c_str(),
                     asked.empty() ? "it unset" : asked.c_str())
        .with_device(device.name().c_str());
  };
  if (before.cache_limit != wanted.cache_limit)
    refuse("cache_limit", bytes_text(before.cache_limit), bytes_text(wanted.cache_limit));
  if (before.trim != wanted.trim) refuse("trim", trim_text(before), trim_text(wanted));
  compare_options(backend, before, wanted, refuse);
}

}  // namespace

Proposal::Proposal(Runtime& runtime, Config config) : runtime_(runtime), settings_(make_settings(std::move(config))) {}

void Proposal::open() {
  const Config& c = this->config();
  check_pass_names(c.disabled_passes, false, EVN_ERROR_CONFIG, c.source + ":" + std::to_string(c.passes_line));
  check_names();
  check_cpus();
  open_cpu();
  for (const DeviceConfig& d : c.devices) {
    if (d.type != "cpu") open(d);
  }
}

Proposal::~Proposal() {
  if (adopted_) return;
  for (const Limit& limit : limits_) {
    if (limit.wanted > limit.before) limit.device->set_memory_limit(limit.before);
  }
  for (;;) {
    std::shared_ptr<Device> opened;  // closed without the lock
    const LockIfAlive lock(runtime_.opening_);
    for (Runtime::Opened& o : runtime_.opened_) o.proposed.reset();
    const auto it = std::find_if(runtime_.opened_.begin(), runtime_.opened_.end(),
                                 [](const Runtime::Opened& o) { return o.unpublished != nullptr; });
    if (it == runtime_.opened_.end()) return;
    opened = std::move(it->unpublished);
    runtime_.opened_.erase(it);
    runtime_.costs_.drop(*opened);
  }
}

// Names of operators that the host may register later are checked when sessions are made. Who reads the log sees them now.
void Proposal::check_names() const {
  check_config_names(config(), runtime_.operators(), NameCheck::kMistyped, nullptr);
  if (!runtime_.log().wants(EVN_LOG_INFO)) return;
  for (const std::string& message : unknown_config_names(config(), runtime_.operators(), NameCheck::kBare)) {
    LogEvent(runtime_.log(), EVN_LOG_INFO, "config.unknown_operator")
        .field("config", config().source.c_str())
        .write("%s", message.c_str());
  }
}

void Proposal::check_cpus() const {
  const DeviceConfig* first = nullptr;
  for (const DeviceConfig& d : config().devices) {
    if (d.type != "cpu") continue;
    if (first != nullptr)
      fail(EVN_ERROR_CONFIG, "%s:%d: a second device of type cpu (the first is at line %d)", config().source.c_str(), d.line,
           first->line);
    first = &d;
  }
}

void Proposal::open_cpu() {
  const auto it = std::find_if(config().devices.begin(), config().devices.end(), [](const auto& d) { return d.type == "cpu"; });
  const DeviceConfig* const cpu = it != config().devices.end() ? &*it : nullptr;
  const RuntimeOptions& options = runtime_.options_;
  const Backend& backend = *runtime_.backend("cpu");
  const std::lock_guard<Mutex> opening(runtime_.opening_);
  if (runtime_.opened_.empty()) {
    DeviceRequest request;
    if (cpu != nullptr) request = request_of(*cpu);
    if (cpu == nullptr) request.name = "cpu";
    if (options.thread_count > 0) request.settings.set_number("threads", static_cast<std::uint64_t>(options.thread_count));
    if (options.cpu_memory_limit != 0) request.memory_limit = options.cpu_memory_limit;
    Runtime::Opened& opened = runtime_.open_new(backend, nullptr, std::move(request));
    if (cpu != nullptr) opened.proposed = *cpu;
    settings_->devices.push_back({opened.device->name(), opened.device});
    return;
  }
  Runtime::Opened& opened = runtime_.opened_[0];
  DeviceConfig wanted;
  if (cpu != nullptr) wanted = *cpu;
  if (cpu == nullptr) wanted.name = opened.device->name();
  note(opened, wanted, backend);
  settings_->devices.push_back({wanted.name, opened.device});
}

void Proposal::open(const DeviceConfig& device) {
  const Backend* const backend = runtime_.backend(device.type);
  if (backend == nullptr) {
    fail(EVN_ERROR_CONFIG, "%s:%d: device %s: there is no device type %s", config().source.c_str(), device.line,
         device.name.c_str(), device.type.c_str());
  }
  DeviceRequest request = request_of(device);
  try {
    const std::lock_guard<Mutex> opening(runtime_.opening_);
    const void* identity = nullptr;
    if (is_attached(device)) return open_attached(device, *backend);
    Runtime::Opened* opened = runtime_.find_opened(*backend, request, &identity);
    if (opened == nullptr) {
      name(device, nullptr);
      opened = &runtime_.open_new(*backend, identity, std::move(request));
      opened->proposed = device;
    } else {
      name(device, opened->device);
      note(*opened, device, *backend);
    }
    settings_->devices.push_back({device.name, opened->device});
  } catch (Error& e) {
    if (e.status != EVN_ERROR_DEVICE_UNAVAILABLE && (e.status != EVN_ERROR_FORKED || !device.optional)) throw;
    if (!device.optional) {
      const Error inner = e;
      throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "%s:%d: device %s is not there: %s", config().source.c_str(), device.line,
                       device.name.c_str(), inner.message)
          .with_device(device.name.c_str());
    }
    LogEvent(runtime_.log(), EVN_LOG_WARNING, "device.absent")
        .device(device.name.c_str())
        .field("reason", e.message)
        .write("optional device %s is not there: %s", device.name.c_str(), e.message);
    settings_->absent.push_back({device.name, e.message});
  }
}

// The one that the host has attached by this name, or it is still to come.
void Proposal::open_attached(const DeviceConfig& device, const Backend& backend) {
  for (Runtime::Opened& o : runtime_.opened_) {
    if (o.backend != &backend || o.device->name() != device.name) continue;
    note(o, device, backend);
    settings_->devices.push_back({device.name, o.device});
    return;
  }
  settings_->absent.push_back({device.name, "the host attaches it and has not done so yet"});
}

// A device keeps the name that it was opened by, which no other can have; `device`: nullptr: it is still to be opened.
void Proposal::name(const DeviceConfig& configured, Device* device) {
  for (std::size_t i = 0; i < runtime_.device_count(); ++i) {
    const Device* const other = runtime_.device_at(i);
    if (other == device || other->name() != configured.name) continue;
    throw make_error(EVN_ERROR_CONFIG, "%s:%d: the name %s is that of another device that is open, \"%s\"", config().source.c_str(),
                     configured.line, configured.name.c_str(), other->traits().description.c_str())
        .with_device(configured.name.c_str());
  }
  if (device == nullptr || device->name() == configured.name) return;
  LogEvent(runtime_.log(), EVN_LOG_INFO, "device.named")
      .device(device->name().c_str())
      .field("name", configured.name.c_str())
      .write("%s is another name of device %s", configured.name.c_str(), device->name().c_str());
}

// What the configuration says of a device that is open.
void Proposal::note(Runtime::Opened& opened, const DeviceConfig& wanted, const Backend& backend) {
  if (opened.proposed) return check_same_settings(config(), backend, *opened.device, *opened.proposed, wanted);
  DeviceConfig before;
  if (opened.configured) before = *opened.configured;
  const RuntimeOptions& options = runtime_.options_;
  const bool is_cpu = &opened == &runtime_.opened_[0];
  // What the runtime's options say of the CPU counts more than what a configuration does.
  if (!is_cpu || options.thread_count == 0) check_unchanged(config(), backend, *opened.device, before, wanted);
  if (before.memory_limit != wanted.memory_limit && (!is_cpu || options.cpu_memory_limit == 0)) {
    Device& device = *opened.device;
    limits_.push_back({&device, device.pool().stats().limit, wanted.memory_limit, wanted.line});
    if (wanted.memory_limit > limits_.back().before) device.set_memory_limit(wanted.memory_limit);
  }
  opened.proposed = wanted;
}

void Proposal::check_limits() const {
  for (const Limit& limit : limits_) {
    const PoolStats stats = limit.device->pool().stats();
    if (stats.current <= limit.wanted) continue;
    throw make_error(
        EVN_ERROR_OUT_OF_MEMORY,
        "%s:%d: device %s holds %llu bytes, with the weights of the old and the new placement, and is to have %llu at most",
        config().source.c_str(), limit.line, limit.device->name().c_str(), static_cast<unsigned long long>(stats.current),
        static_cast<unsigned long long>(limit.wanted))
        .with_device(limit.device->name().c_str())
        .with_bytes(stats.current, limit.wanted);
  }
}

void Proposal::adopt() {
  SettingsPtr before;  // goes without the locks
  const std::lock_guard<Mutex> opening(runtime_.opening_);
  {
    const std::lock_guard<std::mutex> lock(runtime_.mutex_);
    runtime_.devices_.reserve(runtime_.devices_.size() + runtime_.opened_.size());
    adopted_ = true;
    for (Runtime::Opened& o : runtime_.opened_) {
      if (o.proposed) o.configured = std::move(o.proposed);  // else it keeps the options that it is open with
      o.proposed.reset();
      if (o.unpublished != nullptr) runtime_.devices_.push_back(std::move(o.unpublished));
    }
    before.swap(runtime_.settings_);
    runtime_.settings_ = settings_;
  }
  for (const Limit& limit : limits_) limit.device->set_memory_limit(limit.wanted);
  for (const Runtime::Opened& o : runtime_.opened_) o.device->quarantine().set_grace(config().limits.overdue_time_ns);
}

}  // namespace evn
