#include "runtime/objects/runtime.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/own_library.h"
#include "kept_features.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/live/proposal.h"
#include "runtime/loaded/weight_pager.h"
#include "runtime/objects/probe.h"
#include "runtime/run/arena_store.h"

namespace evn {
namespace {

// Splits "npu:1" into "npu" and 1. False when the part behind the colon is no number.
bool split_index(const std::string& name, std::string* type, int* index) {
  const std::size_t colon = name.find(':');
  *type = name.substr(0, colon);
  *index = 0;
  if (colon == std::string::npos) return true;
  const char* first = name.data() + colon + 1;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, *index);
  return error == std::errc() && end == last && first != last && *index >= 0;
}

const DeviceConfig* cpu_config(const Config& config) {
  for (const DeviceConfig& d : config.devices) {
    if (d.type == "cpu") return &d;
  }
  return nullptr;
}

// Runs compute on so many threads of their callers at a time; with an executor of the host's, which may run sessions within its
// tasks, on all.
int cores_of(const RuntimeOptions& options) {
  if (options.executor.parallel_for != nullptr) return 0;
  const DeviceConfig* const cpu = cpu_config(options.config);
  const int configured = cpu != nullptr ? static_cast<int>(cpu->settings.number("threads", 0)) : 0;
  return std::max(options.thread_count > 0 ? options.thread_count : configured, os::usable_cores());
}

ProbeConfig probe_of(const RuntimeOptions& options) {
  ProbeConfig probe = options.config.probe;
  if (!options.probe.program.empty()) probe.program = options.probe.program;
  if (options.probe.timeout_ns != 0) probe.timeout_ns = options.probe.timeout_ns;
  return probe;
}

// What is kept for later: first what costs an allocation to have again, then packed weights, which have to be packed again.
class IdleMemory final : public Reclaimer {
 public:
  IdleMemory(std::shared_ptr<ArenaStores> arenas, std::shared_ptr<WeightPagers> pagers)
      : arenas_(std::move(arenas)), pagers_(std::move(pagers)) {}
  bool reclaim(const Pool& pool, std::size_t bytes) noexcept override {
    if (arenas_->reclaim(pool, bytes)) return true;
    return bytes != kWhateverIsIdle && pagers_->reclaim(pool, bytes);
  }

 private:
  static constexpr std::size_t kWhateverIsIdle = SIZE_MAX;  // Pool::trim: nobody needs the memory
  const std::shared_ptr<ArenaStores> arenas_;
  const std::shared_ptr<WeightPagers> pagers_;
};

}  // namespace

Runtime::Runtime(RuntimeOptions options)
    : options_(std::move(options)),
      arenas_(std::make_shared<ArenaStores>()),
      pagers_(std::make_shared<WeightPagers>()),
      costs_(options_.cache_dir),
      scheduler_(cores_of(options_)),
      probe_(std::make_unique<DriverProbe>(probe_of(options_), options_.log)) {
  keep_own_library_loaded();
  Proposal first(*this, std::move(options_.config));
  first.open();
  first.adopt();
  cpu_ = devices_[0].get();
  const bool on_host = has_executor() || options_.post.post != nullptr;
  if (kHas_full)
    dispatcher_ = std::make_unique<RequestDispatcher>(static_cast<int>(this->cpu().traits().compute_units), on_host, options_.post,
                                                      settings_->config.limits.queued_requests);
  LogEvent(options_.log, EVN_LOG_INFO, "runtime.created")
      .field("devices", devices_.size())
      .field("absent_devices", settings_->absent.size())
      .field("threads", this->cpu().traits().compute_units)
      .field("config", settings_->config.source.c_str())
      .write("made a runtime with %zu devices and %u threads", devices_.size(), this->cpu().traits().compute_units);
}

Runtime::~Runtime() {
  if (!kHas_full) static_cast<void>(dispatcher_.release());
}

const Backend* Runtime::backend(const std::string& type) const {
  for (const Backend* b : options_.backends) {
    if (type == b->type.name) return b;
  }
  return nullptr;
}

const Backend* Runtime::find_alias(const std::string& name, const DeviceAlias** alias) const {
  for (const Backend* b : options_.backends) {
    for (const DeviceAlias& a : b->aliases) {
      if (name != a.name) continue;
      *alias = &a;
      return b;
    }
  }
  return nullptr;
}

bool Runtime::means_device(const std::string& name) const {
  std::string type;
  int index = 0;
  const DeviceAlias* alias = nullptr;
  return split_index(name, &type, &index) && (backend(type) != nullptr || find_alias(type, &alias) != nullptr);
}

std::string Runtime::why_hidden(const Backend& b) const { return probe_->why_hidden(b); }

void Runtime::require_shown(const Backend& b, const std::string& device) const {
  const std::string why = why_hidden(b);
  if (!why.empty()) throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "%s", why.c_str()).with_device(device.c_str());
}

std::vector<DeviceListing> Runtime::list(const Backend& b, std::string* why) const {
  *why = why_hidden(b);
  return why->empty() ? b.list(why) : std::vector<DeviceListing>();
}

Runtime::Opened* Runtime::find_opened(const Backend& b, const DeviceRequest& request, const void** identity) {
  require_shown(b, request.name);
  *identity = b.identify != nullptr ? b.identify(request) : nullptr;
  for (Opened& o : opened_) {
    if (o.backend != &b) continue;
    if (*identity != nullptr ? o.identity == *identity : o.device->name() == request.name) return &o;
  }
  return nullptr;
}

Runtime::Opened& Runtime::open_new(const Backend& b, const void* identity, DeviceRequest request, const NativeObjects* attached) {
  request.cache_dir = options_.cache_dir;
  request.executor = options_.executor;
  request.scheduler = &scheduler_;
  request.allocator = options_.allocator;
  request.log = options_.log;
  opened_.reserve(opened_.size() + 1);
  std::shared_ptr<Device> device = attached != nullptr ? b.attach(request, *attached) : b.open(request);
  device->pool().set_log(options_.log);
  device->pool().set_reclaimer(std::make_shared<IdleMemory>(arenas_, pagers_));
  set_cache_policy(*device, request.cache);
  device->begin_quarantines(options_.log,
                            settings_ != nullptr ? settings()->config.limits.overdue_time_ns : Limits{}.overdue_time_ns);
  const DeviceTraits& traits = device->traits();
  LogEvent(options_.log, EVN_LOG_INFO, "device.opened")
      .device(device->name().c_str())
      .field("type", b.type.name)
      .field("description", traits.description.c_str())
      .field("driver", traits.driver.c_str())
      .field("compute_units", traits.compute_units)
      .field("memory_limit_bytes", request.memory_limit)
      .write("opened device %s: %s (%s)", device->name().c_str(), traits.description.c_str(), traits.driver.c_str());
  Device* const opened = device.get();
  opened_.push_back({&b, identity, {}, {}, opened, std::move(device)});
  return opened_.back();
}

// Makes it one of the runtime's devices, where it is not yet.
Device* Runtime::publish(Opened& opened) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (opened.unpublished != nullptr) devices_.push_back(opened.unpublished);
  opened.unpublished = nullptr;
  return opened.device;
}

// `keep_name`: so that who asks by this name again need not ask the driver.
Device* Runtime::open_by_name(const Backend& b, DeviceRequest request, bool keep_name) {
  const std::lock_guard<Mutex> opening(opening_);
  std::string why;
  if (Device* d = known_device(request.name, *settings(), &why)) return d;  // another thread was first
  const std::string name = request.name;
  const void* identity = nullptr;
  Opened* opened = find_opened(b, request, &identity);
  const bool is_new = opened == nullptr;
  if (is_new) opened = &open_new(b, identity, std::move(request));
  Device* const device = publish(*opened);
  if (keep_name && !is_new) name_device(name, device);
  return device;
}

void Runtime::name_device(std::string name, Device* device) {
  LogEvent(options_.log, EVN_LOG_INFO, "device.named")
      .device(device->name().c_str())
      .field("name", name.c_str())
      .write("%s is another name of device %s", name.c_str(), device->name().c_str());
  const std::lock_guard<std::mutex> lock(mutex_);
  names_.push_back({std::move(name), device});
}

SettingsPtr Runtime::settings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return settings_;
}

std::shared_ptr<ArenaStore> Runtime::shared_arenas(std::uint64_t budget) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (shared_arenas_ == nullptr) shared_arenas_ = std::make_shared<ArenaStore>(arenas_, budget);
  return shared_arenas_;
}

std::string Runtime::devices_out() const {
  std::string names;
  for (std::size_t i = 0; const Device* const device = device_at(i); ++i) {
    if (device->is_out()) names += device->name() + "\n";
  }
  return names;
}

void Runtime::set_cache_policy(Device& device, const CachePolicy& policy) {
  if (policy.trim == TrimWhen::kIdle) trims_idle_.store(true, std::memory_order_relaxed);
  device.pool().set_cache_policy(policy);
}

void Runtime::end_run() noexcept {
  if (runs_.fetch_sub(1, std::memory_order_acq_rel) != 1 || !trims_idle_.load(std::memory_order_relaxed)) return;
  for (std::size_t i = 0; Device* const device = device_at(i); ++i) {
    if (device->pool().trims_when() == TrimWhen::kIdle) device->pool().trim();
  }
}

std::size_t Runtime::device_count() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return devices_.size();
}

Device* Runtime::device_at(std::size_t index) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index < devices_.size() ? devices_[index].get() : nullptr;
}

std::string Runtime::list_names() const {
  std::string names;
  for (std::size_t i = 0; i < device_count(); ++i) names += (i > 0 ? ", " : "") + device_at(i)->name();
  for (const Backend* b : options_.backends) {
    std::string why;
    for (const DeviceListing& d : list(*b, &why)) {
      if (names.find(d.id) == std::string::npos) names += ", " + d.id;
    }
  }
  return names;
}

Device* Runtime::known_device(const std::string& name, const Settings& settings, std::string* why) const {
  if (Device* const device = settings.find(name, why)) return device;
  if (!why->empty()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& d : devices_) {
    if (d->name() == name) return d.get();
  }
  for (const Name& n : names_) {
    if (n.name == name) return n.device;
  }
  return nullptr;
}

std::vector<Device*> Runtime::devices_for(const Settings& settings) const {
  std::vector<Device*> devices;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& d : devices_) {
    const bool asked_for = std::find(asked_for_.begin(), asked_for_.end(), d.get()) != asked_for_.end();
    if (devices.empty() || asked_for || settings.has(d.get())) devices.push_back(d.get());
  }
  return devices;
}

void Runtime::require_not_forked(Device& device) {
  if (os::fork_generation() == 0 || device.traits().host_addressable) return;
  device.copy({nullptr, {}}, {&device, {}}, {});  // of nothing
}

Device* Runtime::find_device(const std::string& name, const SettingsPtr& settings) {
  std::string why;
  if (Device* d = known_device(name, *settings, &why)) {
    require_not_forked(*d);
    note_asked_for(*settings, d);
    return d;
  }
  if (!why.empty()) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "device %s is not there: %s", name.c_str(), why.c_str())
        .with_device(name.c_str());
  }
  std::string type;
  int index = 0;
  if (split_index(name, &type, &index)) {
    if (type == "cpu" && index == 0) return cpu_;
    const DeviceAlias* alias = nullptr;
    const Backend* b = backend(type);
    if (b == nullptr) b = find_alias(type, &alias);
    if (b != nullptr && type != "cpu") {
      DeviceRequest request;
      request.name = name;
      request.index = index;
      if (alias != nullptr) request.settings.set_text(alias->option, alias->text);
      // A name is kept as "npu" or "npu:0", not in other spellings of the number (npu:00), or they could be many.
      const bool keep_name = name == type || name == type + ":" + std::to_string(index);
      Device* const device = open_by_name(*b, std::move(request), keep_name);
      note_asked_for(*settings, device);
      return device;
    }
  }
  throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "there is no device \"%s\"; there are: %s", name.c_str(), list_names().c_str())
      .with_device(name.c_str());
}

void Runtime::note_asked_for(const Settings& settings, Device* device) {
  if (device == cpu_ || settings.has(device)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(asked_for_.begin(), asked_for_.end(), device) == asked_for_.end()) asked_for_.push_back(device);
}

namespace {

void write_models(JsonWriter& json, std::string& text, const Config& config) {
  json.key("models");
  json.begin_array();
  for (const ModelConfig& model : config.models) {
    const int max_batch =
        model.session.batching.max_batch != 0 ? model.session.batching.max_batch : config.session.batching.max_batch;
    text += "model " + model.name + ": " + model.path;
    std::string devices;
    for (const std::string& name : model.devices) devices += (devices.empty() ? "" : ", ") + name;
    if (!devices.empty()) text += ", on " + devices;
    if (max_batch != 0) text += ", batches of at most " + std::to_string(max_batch);
    text += "\n";
    json.begin_object();
    json.field("name", model.name);
    json.field("path", model.path);
    json.field("device", devices);
    json.field("max_batch", std::int64_t{max_batch});
    json.field("warm_runs", std::uint64_t{model.warm.size()});
    json.end_object();
  }
  json.end_array();
}

// Whether the devices that are open can be used.
void write_opened(JsonWriter& json, std::string& text, const Runtime& runtime) {
  json.key("opened");
  json.begin_array();
  for (std::size_t i = 0; const Device* const device = runtime.device_at(i); ++i) {
    const std::string why = device->why_out();
    if (!why.empty()) text += "device " + device->name() + ": " + why + "\n";
    json.begin_object();
    json.field("name", device->name());
    json.field("condition", why);
    json.field("quarantines", std::uint64_t{device->quarantine().count()});
    json.end_object();
  }
  json.end_array();
}

}  // namespace

// What a device has, and what tells it apart from others.
static void write_profile(JsonWriter& json, std::string& text, const DeviceProfile& p) {
  static constexpr const char* kFeatures[] = {"fp16", "bf16", "int8_dot", "unified_memory", "subgroups"};  // by bits
  json.key("features");
  json.begin_array();
  text += "  has:      ";
  for (std::size_t i = 0; i < std::size(kFeatures); ++i) {
    if ((p.features >> i & 1) == 0) continue;
    json.value(kFeatures[i]);
    text += std::string(kFeatures[i]) + ", ";
  }
  json.end_array();
  json.field("largest_allocation_bytes", p.largest_allocation);
  json.field("identity", p.identity);
  text += "buffers of at most " + std::to_string(p.largest_allocation >> 20) + " MiB\n  identity: " + p.identity + "\n";
}

std::string Runtime::describe_devices(evn_format format) const {
  JsonWriter json;
  std::string text;
  json.begin_object();
  json.key("backends");
  json.begin_array();
  for (const Backend* b : options_.backends) {
    std::string why;
    const std::vector<DeviceListing> found = list(*b, &why);
    json.begin_object();
    json.field("type", b->type.name);
    json.key("devices");
    json.begin_array();
    for (const DeviceListing& d : found) {
      text += d.id + "  " + d.description + "\n  platform: " + d.platform + "\n  driver:   " + d.driver +
              "\n  kind:     " + d.kind + ", " + std::to_string(d.compute_units) + " compute units, " +
              std::to_string(d.memory_bytes >> 20) + " MiB\n";
      if (!d.libraries.empty()) text += "  uses:     " + d.libraries + "\n";
      json.begin_object();
      json.field("id", d.id);
      json.field("description", d.description);
      json.field("platform", d.platform);
      json.field("driver", d.driver);
      json.field("kind", d.kind);
      json.field("compute_units", std::uint64_t{d.compute_units});
      json.field("memory_bytes", d.memory_bytes);
      json.field("libraries", d.libraries);
      write_profile(json, text, d.profile);
      json.end_object();
    }
    json.end_array();
    if (!why.empty()) {
      text += std::string(b->type.name) + ": " + why + "\n";
      json.field("why", why);
    }
    json.end_object();
  }
  json.end_array();
  write_opened(json, text, *this);
  write_models(json, text, settings()->config);
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
