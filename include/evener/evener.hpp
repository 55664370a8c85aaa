// Evener for C++17 and later: owners, exceptions and views over the C API of evener.h. Header only; it needs the standard library
// and libevener, nothing else. Here are models, sessions and runtimes; tensors are in tensor.hpp, asynchronous runs in request.hpp,
// states of streams in state.hpp, what all share in core.hpp, and operators of a program's own in operator.hpp.
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
#include "request.hpp"
#include "state.hpp"

namespace evener {
inline namespace EVENER_SPANS {

// ------------------------------------------------------------------------------------------------- models and sessions --

namespace detail {

template <typename H, typename F>
std::size_t count(H handle, F f) {
  std::uint32_t n = 0;
  check([&](evn_error* e) { return f(handle, &n, e); });
  return n;
}
template <typename H, typename F>
std::string text_at(H handle, F f, std::size_t index) {
  return text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
    return f(handle, static_cast<std::uint32_t>(index), b, c, s, e);
  });
}
template <typename H, typename F, typename N>
ValueInfo value(H handle, F f, N name, std::size_t index) {
  evn_value_info info = EVN_VALUE_INFO_INIT;
  check([&](evn_error* e) { return f(handle, static_cast<std::uint32_t>(index), &info, e); });
  ValueInfo v;
  v.name = text_at(handle, name, index);
  v.dtype = static_cast<DType>(info.dtype);
  v.type = info.type;
  v.has_rank = info.rank <= EVN_MAX_RANK;
  for (std::uint32_t i = 0; v.has_rank && i < info.rank; ++i) {
    v.dims.push_back(info.dims[i]);
    v.symbols.emplace_back(info.symbols[i]);
  }
  return v;
}
template <typename H, typename C, typename F, typename N>
std::vector<ValueInfo> values(H handle, C counted, F f, N name) {
  std::vector<ValueInfo> all(count(handle, counted));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(handle, f, name, i);
  return all;
}

}  // namespace detail

// What is done to models so that they run faster; each may be left out by its name.
inline std::string describe_passes(Format format = Format::kText) {
  return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
    return evn_describe_passes(static_cast<evn_format>(format), b, c, s, e);
  });
}

class Model : public detail::Object<evn_model, evn_model_release> {
 public:
  Model() noexcept = default;

  std::string describe(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_describe(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  std::vector<ValueInfo> inputs() const {
    return detail::values(get(), evn_model_input_count, evn_model_get_input_info, evn_model_input_name);
  }
  std::vector<ValueInfo> outputs() const {
    return detail::values(get(), evn_model_output_count, evn_model_get_output_info, evn_model_output_name);
  }
  // In the order of the file.
  std::vector<std::string> metadata_keys() const {
    std::vector<std::string> keys(detail::count(get(), evn_model_metadata_count));
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = detail::text_at(get(), evn_model_metadata_key, i);
    return keys;
  }
  // Throws EVN_ERROR_INVALID_ARGUMENT when there is none.
  std::string metadata(const std::string& key) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_model_get_metadata(get(), key.c_str(), b, c, s, e);
    });
  }

 private:
  friend class Runtime;
};

// An input by its name, for Session::run. Refers to both.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

class Session : public detail::Object<evn_session, evn_session_release> {
 public:
  Session() noexcept = default;

  std::size_t input_count() const { return detail::count(get(), evn_session_input_count); }
  std::size_t output_count() const { return detail::count(get(), evn_session_output_count); }
  ValueInfo input(std::size_t index) const {
    return detail::value(get(), evn_session_get_input_info, evn_session_input_name, index);
  }
  ValueInfo output(std::size_t index) const {
    return detail::value(get(), evn_session_get_output_info, evn_session_output_name, index);
  }
  std::vector<ValueInfo> inputs() const {
    return detail::values(get(), evn_session_input_count, evn_session_get_input_info, evn_session_input_name);
  }
  std::vector<ValueInfo> outputs() const {
    return detail::values(get(), evn_session_output_count, evn_session_get_output_info, evn_session_output_name);
  }
  // The position of the input or output of that name. Throws EVN_ERROR_INVALID_ARGUMENT listing the names there are.
  std::size_t find_input(const std::string& name) const { return find(evn_session_find_input, name.c_str()); }
  std::size_t find_output(const std::string& name) const { return find(evn_session_find_output, name.c_str()); }

  // Runs the model once: inputs in the model's order, new tensors on the CPU in the model's order.
  std::vector<Tensor> run(Span<const Tensor> inputs, const RunOptions& options = {}) const {
    std::vector<Tensor> outputs(output_count());
    run(inputs, outputs, options);
    return outputs;
  }
  // Of a model with one input.
  std::vector<Tensor> run(const Tensor& input, const RunOptions& options = {}) const {
    return run(Span<const Tensor>(&input, 1), options);
  }
  // By name: session.run({{"x", x}, {"y", y}}).
  std::vector<Tensor> run(std::initializer_list<NamedTensor> inputs, const RunOptions& options = {}) const {
    std::vector<evn_tensor> in(input_count());
    for (const NamedTensor& n : inputs) in[find(evn_session_find_input, n.name)] = n.tensor.get();
    std::vector<Tensor> outputs(output_count());
    run_handles(in, outputs, options);
    return outputs;
  }
  // Into given tensors; empty ones are replaced by new tensors on the CPU. When it throws, none is replaced.
  void run(Span<const Tensor> inputs, Span<Tensor> outputs, const RunOptions& options = {}) const {
    std::vector<evn_tensor> in;
    in.reserve(inputs.size());
    for (const Tensor& t : inputs) in.push_back(t.get());
    run_handles(in, outputs, options);
  }

  // Of a model that takes or gives more than tensors.
  std::vector<Value> run_values(Span<const Value> inputs, const RunOptions& options = {}) const {
    std::vector<evn_value> in;
    for (const Value& v : inputs) in.push_back(v.get());
    std::vector<evn_value> out(output_count());
    std::vector<Value> outputs;
    outputs.reserve(out.size());
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_run_values(get(), in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                                    static_cast<std::uint32_t>(out.size()), &o, e);
    });
    for (const evn_value v : out) {
      outputs.emplace_back();
      *outputs.back().handle_.out() = v;
    }
    return outputs;
  }

  // Has the library's threads run the model, and returns at once. Inputs in the model's order; their bytes must stay as they are
  // until the future is ready. It throws what run would throw.
  std::future<std::vector<Tensor>> submit(Span<const Tensor> inputs, const RunOptions& options = {}) const {
    auto promise = std::make_unique<detail::Promise>();
    promise->output_count = output_count();
    promise->take = &Request::take_from;
    std::future<std::vector<Tensor>> outputs = promise->outputs.get_future();
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.done = detail::Promise::on_done;
    o.user = promise.get();
    o.release = detail::Promise::on_release;
    submit_handles(inputs, options, o, nullptr);
    static_cast<void>(promise.release());  // the library has it now
    return outputs;
  }
  // The same for who takes its end from a queue, which gives the Request; `user` is what Request::user gives.
  void submit(Span<const Tensor> inputs, const Queue& queue, void* user, const RunOptions& options = {}) const {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.queue = queue.get();
    o.user = user;
    submit_handles(inputs, options, o, nullptr);
  }
  // The same for who waits for it.
  Request request(Span<const Tensor> inputs, const RunOptions& options = {}) const {
    Request request;
    submit_handles(inputs, options, EVN_SUBMIT_OPTIONS_INIT, request.handle_.out());
    return request;
  }
  // Ends this object, and waits until all that was submitted to it has ended; throws EVN_ERROR_TIMEOUT after so long.
  void finish(std::uint64_t timeout_ns = UINT64_MAX) {
    detail::check([&](evn_error* e) { return evn_session_finish(get(), timeout_ns, e); });
  }

  // A state of the session, for one stream: session.state({{"present_k", "past_k", 2048}, {"h_next", "h"}}).
  State state(const std::vector<StatePair>& pairs, const StateOptions& options = {}) const {
    std::vector<evn_state_pair> all;
    for (const StatePair& p : pairs) all.push_back({p.output.c_str(), p.input.c_str(), p.capacity});
    std::vector<evn_input_shape> dims;
    for (const auto& d : options.dims)
      dims.push_back({d.first.c_str(), d.second.data(), static_cast<std::uint32_t>(d.second.size()), 0});
    evn_state_options o = EVN_STATE_OPTIONS_INIT;
    if (options.on_demand) o.flags |= EVN_STATE_ON_DEMAND;
    if (options.float16) o.flags |= EVN_STATE_FLOAT16;
    if (options.int8) o.flags |= EVN_STATE_INT8;
    o.dims = dims.data();
    o.dim_count = static_cast<std::uint32_t>(dims.size());
    State made;
    detail::check([&](evn_error* e) {
      return evn_state_create(get(), all.data(), static_cast<std::uint32_t>(all.size()), &o, made.handle_.out(), e);
    });
    return made;
  }
  // What the session holds on all its devices together.
  evn_session_memory_stats memory_stats() const {
    evn_session_memory_stats stats = EVN_SESSION_MEMORY_STATS_INIT;
    detail::check([&](evn_error* e) { return evn_session_get_memory_stats(get(), &stats, e); });
    return stats;
  }

  // Where each node runs and why.
  std::string explain(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_explain(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  // What runs and requests have come to so far, and how long they waited and ran.
  std::string statistics(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_get_statistics(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }
  void start_trace(std::uint32_t event_capacity) const {
    detail::check([&](evn_error* e) { return evn_session_trace_start(get(), event_capacity, e); });
  }
  void stop_trace() const {
    detail::check([&](evn_error* e) { return evn_session_trace_stop(get(), e); });
  }
  std::string trace(Format format = Format::kText) const {
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_get_trace(get(), static_cast<evn_format>(format), b, c, s, e);
    });
  }

 private:
  friend class Runtime;

  // Refers to what `options` has.
  evn_run_options c_options(const RunOptions& options) const {
    const std::vector<std::uint8_t>& skipped = options.skipped_outputs;
    if (!skipped.empty() && skipped.size() != output_count()) {
      throw Error(EVN_ERROR_INVALID_ARGUMENT, "skipped_outputs has " + std::to_string(skipped.size()) +
                                                  " elements, the model has " + std::to_string(output_count()) + " outputs");
    }
    evn_run_options o = EVN_RUN_OPTIONS_INIT;
    o.allow_copies = options.allow_copies ? 1 : 0;
    o.timeout_ns = options.timeout_ns;
    o.random_seed = options.random_seed;
    o.cancel = options.cancel != nullptr ? options.cancel->get() : nullptr;
    o.deadline_ns = options.deadline_ns;
    o.priority = options.priority;
    o.state = options.state != nullptr ? options.state->get() : nullptr;
    if (options.outputs_on_device) o.flags |= EVN_RUN_OUTPUTS_ON_DEVICE;
    if (options.overwrite_inputs) o.flags |= EVN_RUN_OVERWRITE_INPUTS;
    o.skipped_outputs = skipped.empty() ? nullptr : skipped.data();
    return o;
  }

  void run_handles(const std::vector<evn_tensor>& in, Span<Tensor> outputs, const RunOptions& options) const {
    std::vector<evn_tensor> out;
    out.reserve(outputs.size());
    for (const Tensor& t : outputs) out.push_back(t.get());
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_run(get(), in.data(), static_cast<std::uint32_t>(in.size()), out.data(),
                             static_cast<std::uint32_t>(out.size()), &o, e);
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (outputs[i]) continue;
      *outputs[i].handle_.out() = out[i];
    }
  }

  void submit_handles(Span<const Tensor> inputs, const RunOptions& options, const evn_submit_options& submit,
                      evn_request* request) const {
    std::vector<evn_tensor> in;
    in.reserve(inputs.size());
    for (const Tensor& t : inputs) in.push_back(t.get());
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_submit(get(), in.data(), static_cast<std::uint32_t>(in.size()), nullptr,
                                static_cast<std::uint32_t>(output_count()), &o, &submit, request, e);
    });
  }

  template <typename F>
  std::size_t find(F f, const char* name) const {
    std::uint32_t index = 0;
    detail::check([&](evn_error* e) { return f(get(), name, &index, e); });
    return index;
  }
};

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
    o.config_text = detail::c_str_or_null(options.config_text);
    o.config_size = options.config_text.size();
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

  Model load(const std::string& path) const {
    Model m;
    detail::check([&](evn_error* e) { return evn_model_load_file(get(), path.c_str(), nullptr, m.handle_.out(), e); });
    return m;
  }
  // From bytes, which are copied.
  Model load(const void* data, std::size_t size, const ModelOptions& options = {}) const {
    evn_model_options o = EVN_MODEL_OPTIONS_INIT;
    o.external_dir = detail::c_str_or_null(options.external_dir);
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
    o.concurrency = options.concurrency;
    o.idle_arena_bytes = options.idle_arena_bytes;
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
