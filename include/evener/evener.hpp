// Evener for C++17 and later: owners, exceptions and views over the C API of evener.h. Header only; it needs the standard library
// and libevener, nothing else. Here are runtimes; models and sessions are in session.hpp, tensors and devices in tensor.hpp,
// asynchronous runs in request.hpp, states of streams in state.hpp, events and objects of OpenCL in event.hpp, what all share in
// core.hpp. Included apart: operators of a program's own (operator.hpp), quantization (quantizer.hpp), and training (trainer.hpp).
//
//  Owners      Runtime, Device, Tensor, Value, Model and Session are moved, not copied; a default-made or moved-from one is empty
//              and may only be destroyed, assigned and tested. They may be destroyed in any order. Destructors never throw.
//  Errors      Whatever fails throws evener::Error (a std::runtime_error) with the status, the node, the device and the bytes
//              concerned.
//  Threads     As the C API: const members may be called from several threads at a time.
//  Callbacks   std::functions in options live until the last object made of the runtime has gone. An exception that one throws is
//              dropped, as nothing may be thrown through the library.
#ifndef EVENER_EVENER_HPP
#define EVENER_EVENER_HPP

#include "event.hpp"
#include "session.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// ------------------------------------------------------------------------------------------------------------ runtime --

class Runtime : public detail::Object<evn_runtime, evn_runtime_release> {
 public:
  // With the default options: the CPU, all cores.
  Runtime() : Runtime(RuntimeOptions{}) {}
  explicit Runtime(RuntimeOptions options) {
    auto callbacks = std::make_unique<detail::Callbacks>();
    callbacks->log = std::move(options.log);
    callbacks->parallel_for = std::move(options.parallel_for);
    callbacks->ended = std::move(options.ended);
    evn_runtime_options o = EVN_RUNTIME_OPTIONS_INIT;
    o.thread_count = options.thread_count;
    o.config_path = detail::c_str_or_null(options.config_path);
    o.config_text = options.config_text ? options.config_text->c_str() : nullptr;
    o.config_size = options.config_text ? options.config_text->size() : 0;
    o.log_level = static_cast<evn_log_level>(options.log_level);
    o.cache_dir = options.cache_dir ? options.cache_dir->c_str() : nullptr;
    o.cpu_memory_limit_bytes = options.cpu_memory_limit_bytes;
    o.probe_program = detail::c_str_or_null(options.probe_program);
    o.probe_timeout_ns = options.probe_timeout_ns;
    if (callbacks->log) {
      o.log_sink = detail::Callbacks::on_log;
      o.log_sink_user = callbacks.get();
    }
    if (callbacks->parallel_for) {
      o.parallel_for = detail::Callbacks::on_parallel_for;
      o.parallel_user = callbacks.get();
    }
    o.allocator = options.allocator;
    o.ended = detail::release_callbacks;
    o.ended_user = callbacks.get();
    detail::check([&](evn_error* e) { return evn_runtime_create(&o, handle_.out(), e); });
    static_cast<void>(callbacks.release());  // the runtime has it now
  }

  std::size_t device_count() const {
    std::uint32_t n = 0;
    detail::check([&](evn_error* e) { return evn_runtime_device_count(get(), &n, e); });
    return n;
  }
  // By number: 0 is the CPU.
  Device device(std::uint32_t index = 0) const {
    Device d;
    detail::check([&](evn_error* e) { return evn_runtime_device_at(get(), index, d.handle_.out(), e); });
    return d;
  }
  // "cpu", "gpu", "gpu:1", "opencl:0", or a name of the configuration; opens it when it was not open.
  Device device(const std::string& name) const {
    Device d;
    detail::check([&](evn_error* e) { return evn_runtime_device_find(get(), name.c_str(), d.handle_.out(), e); });
    return d;
  }
  Device device(const char* name) const { return device(std::string(name)); }
  // Statistics of all sessions, and the memory of the devices; Format::kPrometheus for a host to serve.
  std::string statistics(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_runtime_get_statistics(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  std::string describe_devices(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_runtime_describe_devices(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

  // Measures what the steps of the model, or of a suite of operators, take on each device (evn_runtime_calibrate).
  std::string calibrate(const Model* model = nullptr, Format format = Format::kText) const {
    std::string text(std::size_t{1} << 16, '\0');  // asking for the size would measure it twice
    for (bool grew = true; grew;) {
      std::size_t size = 0;
      detail::check([&](evn_error* e) {
        const evn_status status = evn_runtime_calibrate(get(), model == nullptr ? nullptr : model->get(), nullptr,
                                                        static_cast<evn_format>(format), text.data(), text.size(), &size, e);
        grew = status == EVN_ERROR_BUFFER_TOO_SMALL;
        if (grew) size = static_cast<std::size_t>(e->bytes_requested) + 1;
        return grew ? EVN_OK : status;
      });
      text.resize(size - 1);
    }
    return text;
  }

  // Gives the runtime another configuration (evn_runtime_reconfigure): a file, or its text where the path is empty. Sessions go on
  // with the placements that it says, or nothing changes.
  void reconfigure(const std::string& config_path, const std::string& config_text = "") const {
    evn_reconfigure_options o = EVN_RECONFIGURE_OPTIONS_INIT;
    o.config_path = detail::c_str_or_null(config_path);
    o.config_text = detail::c_str_or_null(config_text);
    o.config_size = config_text.size();
    detail::check([&](evn_error* e) { return evn_runtime_reconfigure(get(), &o, e); });
  }

  // A sequence, optional or map of a type such as "seq(tensor(float32))".
  Value value(const std::string& type, Span<const Value> parts) const {
    std::vector<evn_value> handles;
    for (const Value& p : parts) handles.push_back(p.get());
    Value v;
    detail::check([&](evn_error* e) {
      return evn_value_create(get(), type.c_str(), handles.data(), static_cast<std::uint32_t>(handles.size()), v.handle_.out(), e);
    });
    return v;
  }

  // A tensor on the CPU with a copy of the elements.
  template <typename T>
  Tensor tensor(const Dims& dims, Span<const T> elements) const {
    Tensor t = device().tensor(dtype_of<T>(), dims);
    {
      const Mapped<T> to = t.template data<T>(Access::kWrite);
      if (to.size() != elements.size()) {
        throw Error(EVN_ERROR_INVALID_ARGUMENT, "the dims give " + std::to_string(to.size()) + " elements, " +
                                                    std::to_string(elements.size()) + " are given");
      }
      if (!elements.empty()) std::memcpy(to.data(), elements.data(), elements.size() * sizeof(T));
    }
    return t;
  }
  template <typename T>
  Tensor tensor(const Dims& dims, const std::vector<T>& elements) const {
    return tensor<T>(dims, Span<const T>(elements.data(), elements.size()));
  }
  template <typename T>
  Tensor tensor(const Dims& dims, std::initializer_list<T> elements) const {
    return tensor<T>(dims, Span<const T>(elements.begin(), elements.size()));
  }
  // A tensor on the CPU over the caller's memory, without a copy: it must stay for as long as the tensor is used.
  template <typename T>
  Tensor wrap(const Dims& dims, Span<T> elements) const {
    return wrap(dtype_of<T>(), dims, elements.data(), elements.size() * sizeof(T), nullptr, nullptr);
  }
  // A tensor on the CPU that takes over the vector's memory.
  template <typename T>
  Tensor take(const Dims& dims, std::vector<T>&& elements) const {
    static_assert(!std::is_same_v<T, bool>, "vector<bool> has no bytes to hand over");
    auto owner = std::make_unique<std::vector<T>>(std::move(elements));
    Tensor t = wrap(dtype_of<T>(), dims, owner->data(), owner->size() * sizeof(T),
                    [](void* user, void*) { delete static_cast<std::vector<T>*>(user); }, owner.get());
    static_cast<void>(owner.release());  // the deleter has it now
    return t;
  }
  // Any dtype, with a deleter; see evn_tensor_wrap. When it throws, the memory stays the caller's.
  Tensor wrap(DType dtype, const Dims& dims, void* data, std::size_t size_bytes, evn_deleter deleter, void* user) const {
    Tensor t;
    detail::check([&](evn_error* e) {
      return evn_tensor_wrap(get(), data, size_bytes, static_cast<evn_dtype>(dtype), dims.data(), dims.rank(), deleter, user,
                             t.handle_.out(), e);
    });
    return t;
  }
  // Takes over a DLManagedTensorVersioned, or with `legacy` a DLManagedTensor; when it throws, that stays the caller's.
  Tensor from_dlpack(void* managed, bool legacy = false) const {
    Tensor t;
    detail::check([&](evn_error* e) {
      return evn_tensor_from_dlpack(get(), managed, detail::dlpack_flags(legacy), t.handle_.out(), e);
    });
    return t;
  }

  Model load(const std::string& path, const ModelOptions& options = {}) const {
    std::vector<const char*> roots;
    const evn_model_options o = detail::model_options(options, &roots);
    Model m;
    detail::check([&](evn_error* e) { return evn_model_load_file(get(), path.c_str(), &o, m.handle_.out(), e); });
    return m;
  }
  // From bytes, which are copied.
  Model load(const void* data, std::size_t size, const ModelOptions& options = {}) const {
    std::vector<const char*> roots;
    const evn_model_options o = detail::model_options(options, &roots);
    Model m;
    detail::check([&](evn_error* e) { return evn_model_load_buffer(get(), data, size, &o, m.handle_.out(), e); });
    return m;
  }

  // The session of a model that the configuration names under `models:`, made as it says and warmed: one for all callers. Throws
  // EVN_ERROR_INVALID_ARGUMENT listing the names there are.
  Session session_named(const std::string& name) const {
    Session s;
    detail::check([&](evn_error* e) { return evn_runtime_session(get(), name.c_str(), s.handle_.out(), e); });
    return s;
  }

  Session session(const Model& model, const SessionOptions& options = {}) const {
    evn_session_options o = EVN_SESSION_OPTIONS_INIT;
    o.device = detail::c_str_or_null(options.device);
    o.cache_file = detail::c_str_or_null(options.cache_file);
    o.cache_flags = options.cache_flags;
    o.precision = static_cast<evn_precision>(options.precision);
    o.numerics = static_cast<evn_numerics>(options.numerics);
    o.products = static_cast<evn_products>(options.products);
    o.memory = static_cast<evn_memory_plan>(options.memory);
    o.arenas = static_cast<evn_arenas>(options.arenas);
    std::vector<const char*> keep;
    for (const std::string& pattern : options.keep_fp32) keep.push_back(pattern.c_str());
    o.keep_fp32 = keep.data();
    o.keep_fp32_count = static_cast<std::uint32_t>(keep.size());
    std::vector<const char*> disabled;
    for (const std::string& name : options.disabled_passes) disabled.push_back(name.c_str());
    o.disabled_passes = disabled.data();
    o.disabled_pass_count = static_cast<std::uint32_t>(disabled.size());
    std::vector<const char*> open;
    for (const std::string& name : options.overridable) open.push_back(name.c_str());
    o.overridable = open.data();
    o.overridable_count = static_cast<std::uint32_t>(open.size());
    o.concurrency = options.concurrency;
    o.idle_arena_bytes = options.idle_arena_bytes;
    o.arena_limit = options.arena_limit;
    o.name = detail::c_str_or_null(options.name);
    evn_batching_options batching = EVN_BATCHING_OPTIONS_INIT;
    if (options.batching) {
      batching.max_batch = options.batching->max_batch;
      const auto delay = options.batching->max_delay.count();
      batching.max_delay_ns = delay > 0 ? static_cast<std::uint64_t>(delay) : 0;
      batching.mask = detail::c_str_or_null(options.batching->mask);
      batching.buckets = options.batching->buckets.data();
      batching.bucket_count = static_cast<std::uint32_t>(options.batching->buckets.size());
      o.batching = &batching;
    }
    Session s;
    detail::check([&](evn_error* e) { return evn_session_create(get(), model.get(), &o, s.handle_.out(), e); });
    return s;
  }
  Session session(const std::string& path, const SessionOptions& options = {}) const { return session(load(path), options); }

  // What a model needs, also when it cannot be loaded; `shapes` are of inputs whose dims the model leaves open.
  std::string inspect(const std::string& path, const std::map<std::string, Dims>& shapes = {},
                      Format format = Format::kText) const {
    std::vector<evn_input_shape> rows;
    for (const auto& [name, dims] : shapes) rows.push_back({name.c_str(), dims.data(), dims.rank(), 0});
    evn_inspect_options o = EVN_INSPECT_OPTIONS_INIT;
    o.shapes = rows.data();
    o.shape_count = static_cast<std::uint32_t>(rows.size());
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_inspect(get(), path.c_str(), &o, static_cast<evn_format>(format), b, c, s, e);
    });
  }
};

}  // inline namespace
}  // namespace evener
#endif
