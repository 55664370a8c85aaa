// Events and copies that devices do by themselves, and OpenCL objects that are shared, in C++. Included by evener.hpp; see event.h
// and opencl.h for the rules.
#ifndef EVENER_EVENT_HPP
#define EVENER_EVENT_HPP

#include "opencl.h"
#include "tensor.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// The end of something that a device does.
class Event : public detail::Object<evn_event, evn_event_release> {
 public:
  Event() noexcept = default;

  // Has a device copy all bytes, behind the events, while the caller goes on. Memory of the host must stay until then.
  static Event copy(const Tensor& from, const Tensor& to, std::initializer_list<const Event*> after = {}) {
    Event copied;
    std::vector<evn_event> waits;
    for (const Event* event : after) waits.push_back(event->get());
    detail::check([&](evn_error* e) {
      const auto count = static_cast<std::uint32_t>(waits.size());
      return evn_tensor_copy_async(from.get(), to.get(), waits.data(), count, copied.handle_.out(), e);
    });
    return copied;
  }
  // An event of all that the device has been given so far.
  static Event record(const Device& device) {
    Event all;
    detail::check([&](evn_error* e) { return evn_device_record_event(device.get(), all.handle_.out(), e); });
    return all;
  }

  // What the device is given from now on begins after it.
  void hold_back(const Device& device) const {
    detail::check([&](evn_error* e) { return evn_device_wait_event(device.get(), get(), e); });
  }
  // Whether it has happened; waits so long for it. Throws the error with which it ended.
  bool wait_for(std::uint64_t timeout_ns) const {
    evn_status status = EVN_OK;
    detail::check([&](evn_error* e) {
      status = evn_event_wait(get(), timeout_ns, e);
      return status == EVN_ERROR_TIMEOUT ? EVN_OK : status;
    });
    return status == EVN_OK;
  }
  void wait() const { wait_for(UINT64_MAX); }

 private:
  friend struct OpenCl;
};

// Objects of OpenCL, as void *.
struct OpenCl {
  void* context = nullptr;
  void* device = nullptr;
  void* queue = nullptr;  // may be null where a device is made of them

  // Makes a device of them, which the runtime knows by the name. limit_bytes: 0: what the configuration says.
  template <typename Runtime>
  Device attach(const Runtime& runtime, const std::string& name, std::uint64_t limit_bytes = 0) const {
    evn_opencl_attach_options o = EVN_OPENCL_ATTACH_OPTIONS_INIT;
    o.name = name.c_str();
    o.context = context;
    o.device = device;
    o.queue = queue;
    o.memory_limit_bytes = limit_bytes;
    Device made;
    detail::check([&](evn_error* e) { return evn_opencl_attach(runtime.get(), &o, made.handle_.out(), e); });
    return made;
  }
  // Those of a device.
  static OpenCl of(const Device& from) {
    OpenCl objects;
    detail::check([&](evn_error* e) {
      return evn_opencl_device_objects(from.get(), &objects.context, &objects.device, &objects.queue, e);
    });
    return objects;
  }

  // A tensor over a cl_mem, which it retains. `flags` is 0 or EVN_TENSOR_READ_ONLY.
  static Tensor wrap(const Device& on, void* mem, std::uint64_t offset, DType dtype, const Dims& dims, std::uint32_t flags = 0) {
    Tensor t;
    detail::check([&](evn_error* e) {
      return evn_opencl_wrap_buffer(on.get(), mem, offset, static_cast<evn_dtype>(dtype), dims.data(), dims.rank(), flags, nullptr,
                                    nullptr, t.handle_.out(), e);
    });
    return t;
  }
  // The cl_mem under a tensor, and where in it the tensor begins.
  struct Place {
    void* mem = nullptr;
    std::uint64_t offset = 0;
  };
  static Place place(const Tensor& tensor) {
    Place p;
    detail::check([&](evn_error* e) { return evn_opencl_get_buffer(tensor.get(), &p.mem, &p.offset, e); });
    return p;
  }

  // An event of a cl_event, which it retains, and a cl_event of an event, which the caller releases.
  static Event import_event(const Device& on, void* native) {
    Event event;
    detail::check([&](evn_error* e) { return evn_opencl_import_event(on.get(), native, event.handle_.out(), e); });
    return event;
  }
  static void* export_event(const Event& event, const Device& to) {
    void* native = nullptr;
    detail::check([&](evn_error* e) { return evn_opencl_export_event(event.get(), to.get(), &native, e); });
    return native;
  }

  // Builds all programs of a device, and writes their binaries into a folder: how many there are, and how many the driver refused.
  struct Programs {
    std::uint32_t stored = 0;
    std::uint32_t refused = 0;
  };
  // flags: EVN_PROGRAMS_SOURCES or 0.
  static Programs store_programs(const Device& of, const std::string& folder, std::uint32_t flags = 0) {
    Programs p;
    detail::check(
        [&](evn_error* e) { return evn_opencl_store_programs(of.get(), folder.c_str(), flags, &p.stored, &p.refused, e); });
    return p;
  }
};

}  // inline namespace
}  // namespace evener
#endif
