// evn_opencl_*: the driver's objects, through what a device says of them (device/native.h).
#include "evener/opencl.h"

#include "api/barrier.h"
#include "api/builtin.h"
#include "api/objects.h"

using namespace evn;

namespace {

constexpr char kType[] = "opencl";

void require_opencl() {
  for (const Backend* b : builtin_backends()) {
    if (b->attach != nullptr && std::string(b->type.name) == kType) return;
  }
  fail(EVN_ERROR_UNSUPPORTED, "this library was built without OpenCL");
}

NativeSharing& native_of(Device& device) {
  require_opencl();
  NativeSharing* const native = device.traits().kind == EVN_DEVICE_OPENCL ? device.native() : nullptr;
  if (native == nullptr)
    throw make_error(EVN_ERROR_INVALID_ARGUMENT, "device %s is no OpenCL device", device.name().c_str())
        .with_device(device.name().c_str());
  return *native;
}

}  // namespace

extern "C" {

evn_status evn_opencl_attach(evn_runtime runtime, const evn_opencl_attach_options* options, evn_device* device, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require_opencl();
    static constexpr evn_opencl_attach_options defaults = EVN_OPENCL_ATTACH_OPTIONS_INIT;
    const evn_opencl_attach_options o = read_options(options, defaults, sizeof(evn_opencl_attach_options));
    if (o.flags != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
    require(o.name != nullptr, "name");
    require(o.context != nullptr, "context");
    require(o.device != nullptr, "device");
    void* const handle = device != nullptr ? make_handle(DeviceView{*r, nullptr}) : nullptr;
    try {
      Device* const attached = (*r)->attach(kType, o.name, {o.context, o.device, o.queue}, o.memory_limit_bytes);
      if (handle != nullptr) (*Pin<DeviceView>(handle)).device = attached;
    } catch (...) {
      if (handle != nullptr) g_handles.release(handle, HandleKind::kDevice);
      throw;
    }
    if (handle != nullptr) *device = static_cast<evn_device>(handle);
  });
}

evn_status evn_opencl_device_objects(evn_device device, void** context, void** native_device, void** queue, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    const NativeObjects objects = native_of(*(*d).device).objects();
    if (context != nullptr) *context = objects.context;
    if (native_device != nullptr) *native_device = objects.device;
    if (queue != nullptr) *queue = objects.queue;
  });
}

evn_status evn_opencl_wrap_buffer(evn_device device, void* mem, uint64_t offset, evn_dtype dtype, const int64_t* dims,
                                  uint32_t rank, uint32_t flags, evn_deleter deleter, void* user, evn_tensor* tensor,
                                  evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    NativeSharing& native = native_of(*(*d).device);
    require(mem != nullptr, "mem");
    require(tensor != nullptr, "tensor");
    if ((flags & ~static_cast<uint32_t>(EVN_TENSOR_READ_ONLY)) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
    const TensorDesc desc = checked_desc((*d).runtime->settings()->config.limits, dtype, dims, rank);
    if (desc.dtype == DType::kString) fail(EVN_ERROR_UNSUPPORTED, "string tensors lie on the CPU device");
    const bool read_only = (flags & EVN_TENSOR_READ_ONLY) != 0;
    auto wrapped =
        std::make_shared<Tensor>((*d).runtime, (*d).device, native.wrap(mem, offset, desc.size_bytes(), read_only), desc);
    if (read_only) wrapped->set_read_only();
    const auto handle = static_cast<evn_tensor>(make_handle<TensorPtr>(wrapped));
    wrapped->adopt_native(deleter, user, mem);  // nothing can fail from here on
    *tensor = handle;
  });
}

evn_status evn_opencl_get_buffer(evn_tensor tensor, void** mem, uint64_t* offset, evn_error* error) {
  return guarded(error, [&] {
    const Pin<TensorPtr> t(tensor);
    const NativeSharing& native = native_of(*(*t)->device());
    require(mem != nullptr, "mem");
    require(offset != nullptr, "offset");
    *mem = native.memory_of((*t)->buffer());
    *offset = (*t)->buffer().offset;
  });
}

evn_status evn_opencl_import_event(evn_device device, void* native_event, evn_event* event, evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    NativeSharing& native = native_of(*(*d).device);
    require(native_event != nullptr, "native_event");
    require(event != nullptr, "event");
    const auto made = std::make_shared<HostEvent>((*d).runtime, Event{});
    void* const handle = make_handle<EventPtr>(made);
    try {
      native.retain_event(native_event);
    } catch (...) {
      g_handles.release(handle, HandleKind::kEvent);
      throw;
    }
    made->set({(*d).device, 0, native_event});
    *event = static_cast<evn_event>(handle);
  });
}

evn_status evn_opencl_export_event(evn_event event, evn_device device, void** native_event, evn_error* error) {
  return guarded(error, [&] {
    const EventPtr e = *Pin<EventPtr>(event);
    const Pin<DeviceView> d(device);
    NativeSharing& native = native_of(*(*d).device);
    require(native_event != nullptr, "native_event");
    *native_event = native.make_event(e->of(*(*d).runtime));
  });
}

evn_status evn_opencl_store_programs(evn_device device, const char* folder, uint32_t flags, uint32_t* stored, uint32_t* refused,
                                     evn_error* error) {
  return guarded(error, [&] {
    const Pin<DeviceView> d(device);
    require(folder != nullptr, "folder");
    if (folder[0] == '\0') fail(EVN_ERROR_INVALID_ARGUMENT, "`folder` is empty");
    if ((flags & ~static_cast<uint32_t>(EVN_PROGRAMS_SOURCES)) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", flags);
    const bool sources = (flags & EVN_PROGRAMS_SOURCES) != 0;
    const NativeSharing::Programs programs = native_of(*(*d).device).store_programs(folder, sources);
    if (stored != nullptr) *stored = programs.stored;
    if (refused != nullptr) *refused = programs.refused;
  });
}

}  // extern "C"
