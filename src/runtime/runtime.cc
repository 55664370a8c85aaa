#include "runtime/runtime.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_writer.h"
#include "runtime/pass_list.h"
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

std::string shown(const Setting& setting, const SettingValue* value) {
  if (value == nullptr) return setting.fallback != nullptr ? setting.fallback : "";
  std::string text = value->text;
  for (const std::string& one : value->texts) text += (text.empty() ? "" : ", ") + one;
  return text;
}

const DeviceConfig* cpu_config(const Config& config) {
  for (const DeviceConfig& d : config.devices) {
    if (d.type == "cpu") return &d;
  }
  return nullptr;
}

// Whether the host is to open it.
bool is_attached(const DeviceConfig& device) { return device.settings.number("attached", 0) != 0; }

DeviceRequest request_of(const DeviceConfig& device) {
  DeviceRequest request;
  request.name = device.name;
  request.settings = device.settings;
  request.memory_limit = device.memory_limit;
  return request;
}

// Runs compute on so many threads of their callers at a time; with an executor of the host's, which may run sessions within its
// tasks, on all.
int cores_of(const RuntimeOptions& options) {
  if (options.executor.parallel_for != nullptr) return 0;
  const DeviceConfig* const cpu = cpu_config(options.config);
  const int configured = cpu != nullptr ? static_cast<int>(cpu->settings.number("threads", 0)) : 0;
  return std::max(options.thread_count > 0 ? options.thread_count : configured, os::usable_cores());
}

}  // namespace

Runtime::Runtime(RuntimeOptions options)
    : options_(std::move(options)),
      arenas_(std::make_shared<ArenaStores>()),
      costs_(options_.cache_dir),
      scheduler_(cores_of(options_)) {
  const Config& config = options_.config;
  check_pass_names(config.disabled_passes, false, EVN_ERROR_CONFIG, config.source + ":" + std::to_string(config.passes_line));
  const DeviceConfig* const cpu = cpu_config(config);
  for (const DeviceConfig& d : config.devices) {
    if (d.type != "cpu" || &d == cpu) continue;
    fail(EVN_ERROR_CONFIG, "%s:%d: a second device of type cpu (the first is at line %d)", config.source.c_str(), d.line,
         cpu->line);
  }
  DeviceRequest request;
  request.name = cpu != nullptr ? cpu->name : "cpu";
  if (cpu != nullptr) {
    request.memory_limit = cpu->memory_limit;
    request.settings = cpu->settings;
  }
  if (options_.thread_count > 0) request.settings.set_number("threads", static_cast<std::uint64_t>(options_.thread_count));
  if (options_.cpu_memory_limit != 0) request.memory_limit = options_.cpu_memory_limit;
  const Backend* cpu_backend = backend("cpu");
  EVN_CHECK(cpu_backend != nullptr);
  open(*cpu_backend, std::move(request), cpu, true);
  for (const DeviceConfig& d : config.devices) {
    if (&d != cpu) open_configured(d);
  }
  const bool on_host = options_.executor.parallel_for != nullptr || options_.post.post != nullptr;
  dispatcher_ = std::make_unique<RequestDispatcher>(static_cast<int>(this->cpu().traits().compute_units), on_host, options_.post,
                                                    config.limits.queued_requests);
  LogEvent(options_.log, EVN_LOG_INFO, "runtime.created")
      .field("devices", devices_.size())
      .field("absent_devices", absent_.size())
      .field("threads", this->cpu().traits().compute_units)
      .field("config", config.source.c_str())
      .write("made a runtime with %zu devices and %u threads", devices_.size(), this->cpu().traits().compute_units);
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

void Runtime::open_configured(const DeviceConfig& device) {
  const Backend* b = backend(device.type);
  if (b == nullptr) {
    fail(EVN_ERROR_CONFIG, "%s:%d: device %s: there is no device type %s", options_.config.source.c_str(), device.line,
         device.name.c_str(), device.type.c_str());
  }
  if (is_attached(device)) {
    absent_.push_back({device.name, "the host attaches it and has not done so yet"});
    return;
  }
  DeviceRequest request = request_of(device);
  try {
    open(*b, std::move(request), &device, true);
  } catch (Error& e) {
    if (e.status != EVN_ERROR_DEVICE_UNAVAILABLE && (e.status != EVN_ERROR_FORKED || !device.optional)) throw;
    if (!device.optional) {
      const Error inner = e;
      throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "%s:%d: device %s is not there: %s", options_.config.source.c_str(),
                       device.line, device.name.c_str(), inner.message)
          .with_device(device.name.c_str());
    }
    LogEvent(options_.log, EVN_LOG_WARNING, "device.absent")
        .device(device.name.c_str())
        .field("reason", e.message)
        .write("optional device %s is not there: %s", device.name.c_str(), e.message);
    absent_.push_back({device.name, e.message});
  }
}

// A device has one cap, one precision, one library of products, and one value of each option that does not only say which device is
// meant.
void Runtime::check_same_settings(const Opened& opened, const DeviceConfig& second) const {
  const DeviceConfig& first = *opened.configured;
  const auto limit = [](const DeviceConfig& d) { return d.memory_limit == UINT64_MAX ? "none" : std::to_string(d.memory_limit); };
  const auto precision = [](const DeviceConfig& d) {
    return std::string(d.precision == Precision::kDefault ? "none" : precision_name(d.precision));
  };
  const auto products = [](const DeviceConfig& d) {
    return std::string(d.products == Products::kDefault ? "none" : products_name(d.products));
  };
  const auto check = [&](const char* key, const std::string& a, const std::string& b) {
    if (a == b) return;
    throw make_error(
        EVN_ERROR_CONFIG, "%s:%d: devices %s (line %d) and %s are one device, \"%s\", and have one %s: %s says %s, %s says %s",
        options_.config.source.c_str(), second.line, first.name.c_str(), first.line, second.name.c_str(),
        opened.device->traits().description.c_str(), key, first.name.c_str(), a.c_str(), second.name.c_str(), b.c_str())
        .with_device(second.name.c_str());
  };
  check("memory_limit", limit(first), limit(second));
  check("precision", precision(first), precision(second));
  check("products", products(first), products(second));
  for (const DeviceOption& option : opened.backend->type.options) {
    const Setting& setting = option.setting;
    if (option.selects || setting.type == SettingType::kMap) continue;
    const SettingValue* const a = first.settings.find(setting.name);
    const SettingValue* const b = second.settings.find(setting.name);
    const bool numbers = setting.type >= SettingType::kInteger && setting.type <= SettingType::kBoolean;
    if (numbers && a != nullptr && b != nullptr && a->number == b->number) continue;  // written differently, perhaps
    check(setting.name, shown(setting, a), shown(setting, b));
  }
}

void Runtime::complete(DeviceRequest& request) {
  request.cache_dir = options_.cache_dir;
  request.executor = options_.executor;
  request.scheduler = &scheduler_;
  request.allocator = options_.allocator;
  request.log = options_.log;
}

Device* Runtime::open(const Backend& b, DeviceRequest request, const DeviceConfig* configured, bool keep_name) {
  complete(request);
  const std::lock_guard<Mutex> opening(opening_);
  std::string why;
  if (Device* d = configured == nullptr ? configured_device(request.name, &why) : nullptr) return d;  // another thread was first
  const void* const identity = b.identify != nullptr ? b.identify(request) : nullptr;
  for (const Opened& o : opened_) {
    if (identity == nullptr || o.backend != &b || o.identity != identity) continue;
    if (configured != nullptr) check_same_settings(o, *configured);
    if (keep_name) name_device(std::move(request.name), o.device);
    return o.device;
  }
  opened_.reserve(opened_.size() + 1);
  Device* const device = open_new(b, request);
  opened_.push_back({&b, identity, configured, device});
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

Device* Runtime::open_new(const Backend& b, const DeviceRequest& request, const NativeObjects* attached) {
  std::shared_ptr<Device> device = attached != nullptr ? b.attach(request, *attached) : b.open(request);
  device->pool().set_log(options_.log);
  device->pool().set_reclaimer(arenas_);
  const DeviceTraits& traits = device->traits();
  LogEvent(options_.log, EVN_LOG_INFO, "device.opened")
      .device(device->name().c_str())
      .field("type", b.type.name)
      .field("description", traits.description.c_str())
      .field("driver", traits.driver.c_str())
      .field("compute_units", traits.compute_units)
      .field("memory_limit_bytes", request.memory_limit)
      .write("opened device %s: %s (%s)", device->name().c_str(), traits.description.c_str(), traits.driver.c_str());
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_.push_back(std::move(device));
  return devices_.back().get();
}

void Runtime::require_free_name(const std::string& name) const {
  std::string type, why;
  int index = 0;
  const DeviceAlias* alias = nullptr;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::string_view kRest = "0123456789_.-";
  const auto is_letter = [&](char c) { return kLetters.find(c) != std::string_view::npos; };
  const bool known = std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || kRest.find(c) != kRest.npos; });
  if (name.empty() || name.size() >= sizeof(evn_device_info::name) || !known || !is_letter(name[0]))
    fail(EVN_ERROR_INVALID_ARGUMENT, "a device's name begins with a letter and has at most 63 letters, digits and _ . -");
  if (configured_device(name, &why) != nullptr || options_.config.find_device(name) != nullptr)
    fail(EVN_ERROR_INVALID_ARGUMENT, "there is a device %s already", name.c_str());
  const bool is_type = split_index(name, &type, &index) && (backend(type) != nullptr || find_alias(type, &alias) != nullptr);
  if (is_type || name == "auto") fail(EVN_ERROR_INVALID_ARGUMENT, "the name %s means something else", name.c_str());
}

Device* Runtime::attach(const std::string& type, const std::string& name, const NativeObjects& objects,
                        std::uint64_t memory_limit) {
  const Backend* const b = backend(type);
  if (b == nullptr || b->attach == nullptr)
    fail(EVN_ERROR_UNSUPPORTED, "this build has no devices of type %s that a host can attach", type.c_str());
  const std::lock_guard<Mutex> opening(opening_);
  const DeviceConfig* const configured = options_.config.find_device(name);
  std::string why;
  DeviceRequest request;
  if (configured != nullptr && configured->type == type && is_attached(*configured) && configured_device(name, &why) == nullptr) {
    request = request_of(*configured);
  } else {
    require_free_name(name);
    request.name = name;
  }
  if (memory_limit != 0) request.memory_limit = memory_limit;
  complete(request);
  for (const Opened& o : opened_) {
    if (o.backend != b || o.identity != objects.device) continue;
    throw make_error(EVN_ERROR_WRONG_STATE,
                     "the device is open already, as %s, with a context of its own: attach it before it is first named",
                     o.device->name().c_str())
        .with_device(name.c_str());
  }
  opened_.reserve(opened_.size() + 1);
  Device* const device = open_new(*b, request, &objects);
  opened_.push_back({b, objects.device, configured, device});
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(absent_, [&](const Absent& a) { return a.name == name; });
  return device;
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
    for (const DeviceListing& d : b->list(&why)) {
      if (names.find(d.id) == std::string::npos) names += ", " + d.id;
    }
  }
  return names;
}

Device* Runtime::configured_device(const std::string& name, std::string* why) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& d : devices_) {
      if (d->name() == name) return d.get();
    }
    for (const Name& n : names_) {
      if (n.name == name) return n.device;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Absent& a : absent_) {
    if (a.name == name) *why = a.why;
  }
  return nullptr;
}

void Runtime::require_not_forked(Device& device) {
  if (os::fork_generation() == 0 || device.traits().host_addressable) return;
  device.copy({nullptr, {}}, {&device, {}}, {});  // of nothing
}

Device* Runtime::find_device(const std::string& name) {
  std::string why;
  if (Device* d = configured_device(name, &why)) {
    require_not_forked(*d);
    return d;
  }
  if (!why.empty()) {
    throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "device %s is not there: %s", name.c_str(), why.c_str())
        .with_device(name.c_str());
  }
  std::string type;
  int index = 0;
  if (split_index(name, &type, &index)) {
    if (type == "cpu" && index == 0) return devices_[0].get();
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
      return open(*b, std::move(request), nullptr, keep_name);
    }
  }
  throw make_error(EVN_ERROR_DEVICE_UNAVAILABLE, "there is no device \"%s\"; there are: %s", name.c_str(), list_names().c_str())
      .with_device(name.c_str());
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
    const std::vector<DeviceListing> found = b->list(&why);
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
  write_models(json, text, options_.config);
  json.end_object();
  return format == EVN_FORMAT_JSON ? json.take() : text;
}

}  // namespace evn
