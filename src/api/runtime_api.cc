// evn_runtime_* and evn_device_*.
#include "api/barrier.h"
#include "api/builtin.h"
#include "api/config_source.h"
#include "api/objects.h"
#include "api/work_scope.h"
#include "base/os/os.h"

namespace evn {
namespace {

constexpr std::size_t kSmallestRuntimeOptions = offsetof(evn_runtime_options, cache_dir);
constexpr std::uint64_t kSmallestMemoryLimit = 4096;

std::string default_cache_dir() {
  if (std::string dir = os::environment("EVN_CACHE_DIR"); !dir.empty()) return dir;
  if (const std::string dir = os::environment("XDG_CACHE_HOME"); !dir.empty()) return dir + "/evener";
  if (const std::string dir = os::environment("HOME"); !dir.empty()) return dir + "/.cache/evener";
  return "";
}

void adopt_users(const evn_runtime_options& o, RuntimeUsers& users) {
  users.parallel.adopt(o.parallel_release, o.parallel_user);
  users.post.adopt(o.post_release, o.post_user);
  users.log.adopt(o.log_release, o.log_user);
  users.log_sink.adopt(o.log_sink_release, o.log_sink_user);
  users.allocator.adopt(o.allocator_release, o.allocator.user);
  users.ended.adopt(o.ended, o.ended_user);
}

evn_device make_device(const RuntimePtr& runtime, Device* device) {
  return static_cast<evn_device>(make_handle(DeviceView{runtime, device}));
}

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_runtime_create(const evn_runtime_options* options, evn_runtime* runtime, evn_error* error) {
  return guarded(error, [&] {
    require(runtime != nullptr, "runtime");
    const evn_runtime_options defaults = EVN_RUNTIME_OPTIONS_INIT;
    const evn_runtime_options o = read_options(options, defaults, kSmallestRuntimeOptions);
    if (o.thread_count < 0 || o.thread_count > 1024) fail(EVN_ERROR_INVALID_ARGUMENT, "thread_count is %d", o.thread_count);
    if (o.log_level < EVN_LOG_ERROR || o.log_level > EVN_LOG_DEBUG)
      fail(EVN_ERROR_INVALID_ARGUMENT, "log_level is %d", o.log_level);
    if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    RuntimeOptions inner;
    inner.config = read_config({o.config_path, o.config_text, o.config_size});
    inner.thread_count = o.thread_count;
    inner.cpu_memory_limit = o.cpu_memory_limit_bytes;
    inner.cache_dir = o.cache_dir != nullptr ? std::string(o.cache_dir) : default_cache_dir();
    inner.log = {o.log_callback, o.log_user, o.log_level, o.log_sink, o.log_sink_user};
    if (o.probe_program != nullptr) inner.probe.program = o.probe_program;
    inner.probe.timeout_ns = o.probe_timeout_ns;
    inner.executor = {o.parallel_for, o.parallel_user};
    inner.post = {o.post, o.post_user};
    if ((o.allocator.allocate == nullptr) != (o.allocator.free == nullptr)) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "allocator.allocate and allocator.free must both be given, or none");
    }
    inner.allocator = o.allocator;
    inner.backends = builtin_backends();
    const auto made = std::make_shared<Runtime>(std::move(inner));
    const auto handle = static_cast<evn_runtime>(make_handle(made));
    adopt_users(o, made->users());  // nothing can fail from here on
    *runtime = handle;
  });
}

evn_status evn_runtime_release(evn_runtime runtime) { return release_handle(runtime, HandleKind::kRuntime); }

evn_status evn_runtime_device_count(evn_runtime runtime, uint32_t* count, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(count != nullptr, "count");
    *count = static_cast<uint32_t>((*r)->device_count());
  });
}

evn_status evn_runtime_device_at(evn_runtime runtime, uint32_t index, evn_device* device, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(device != nullptr, "device");
    Device* d = (*r)->device_at(index);
    if (d == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "there is no device %u, there are %zu", index, (*r)->device_count());
    *device = make_device(*r, d);
  });
}

evn_status evn_runtime_device_find(evn_runtime runtime, const char* name, evn_device* device, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(name != nullptr, "name");
    require(device != nullptr, "device");
    *device = make_device(*r, (*r)->find_device(name));
  });
}

evn_status evn_device_release(evn_device device) { return release_handle(device, HandleKind::kDevice); }

evn_status evn_device_get_info(evn_device device, evn_device_info* info, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    const DeviceTraits& t = (*d).device->traits();
    evn_device_info full = EVN_DEVICE_INFO_INIT;
    full.kind = t.kind;
    copy_text(full.name, (*d).device->name());
    copy_text(full.description, t.description);
    copy_text(full.driver, t.driver);
    full.compute_units = t.compute_units;
    full.memory_bytes = t.memory_bytes;
    full.device_class = t.profile.device_class;
    full.features = t.profile.features;
    full.largest_allocation = t.profile.largest_allocation;
    copy_text(full.identity, t.profile.identity);
    const Device& of = *(*d).device;
    full.state = of.is_lost() ? EVN_DEVICE_LOST : of.is_out() ? EVN_DEVICE_QUARANTINED : EVN_DEVICE_READY;
    full.quarantines = of.quarantine().count();
    write_info(info, full);
  });
}

evn_status evn_device_description(evn_device device, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] { write_text((*Pin<DeviceView>(device)).device->traits().description, buffer, capacity, size); });
}

evn_status evn_device_driver(evn_device device, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] { write_text((*Pin<DeviceView>(device)).device->traits().driver, buffer, capacity, size); });
}

evn_status evn_device_condition(evn_device device, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] { write_text((*Pin<DeviceView>(device)).device->why_out(), buffer, capacity, size); });
}

evn_status evn_device_get_memory_stats(evn_device device, evn_memory_stats* stats, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    const PoolStats s = (*d).device->pool().stats();
    evn_memory_stats full = EVN_MEMORY_STATS_INIT;
    full.current = s.current;
    full.peak = s.peak;
    full.reserved = s.reserved;
    full.limit = s.limit;
    std::copy(std::begin(s.by_class), std::end(s.by_class), full.by_class);
    full.allocations = s.allocations;
    full.cache_hits = s.cache_hits;
    full.largest_free_block = s.largest_free_block;
    full.cached = s.cached;
    full.unused = s.unused();
    full.free_blocks = s.free_blocks;
    full.fragmentation = s.fragmentation();
    full.weights_dropped = s.weights_dropped;
    full.weights_restored = s.weights_restored;
    const CachePolicy policy = (*d).device->pool().cache_policy();
    full.cache_limit = policy.limit;
    full.trim = static_cast<evn_trim>(policy.trim);
    write_info(stats, full);
  });
}

evn_status evn_device_reset_memory_peak(evn_device device, evn_error* error) {
  return guarded(error, [&] { (*Pin<DeviceView>(device)).device->pool().reset_peak(); });
}

evn_status evn_device_set_memory_limit(evn_device device, uint64_t limit_bytes, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    if (limit_bytes < kSmallestMemoryLimit) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "limit_bytes is %llu, the least is %llu", static_cast<unsigned long long>(limit_bytes),
           static_cast<unsigned long long>(kSmallestMemoryLimit));
    }
    (*d).device->set_memory_limit(limit_bytes);
  });
}

evn_status evn_device_trim_memory(evn_device device, evn_error* error) {
  return guarded(error, [&] { (*Pin<DeviceView>(device)).device->pool().trim(); });
}

evn_status evn_device_set_cache_policy(evn_device device, uint64_t cache_limit_bytes, evn_trim trim, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    if (trim < EVN_TRIM_NEVER || trim > EVN_TRIM_ALWAYS) fail(EVN_ERROR_INVALID_ARGUMENT, "trim is %d", static_cast<int>(trim));
    (*d).runtime->set_cache_policy(*(*d).device, {cache_limit_bytes, static_cast<TrimWhen>(trim)});
  });
}

}  // extern "C"
