// Models and sessions in C++. Included by evener.hpp.
#ifndef EVENER_SESSION_HPP
#define EVENER_SESSION_HPP

#include "request.hpp"
#include "state.hpp"

namespace evener {
inline namespace EVENER_SPANS {

class Quantizer;
class Trainer;

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
// Refers to what `options` and *roots have.
inline evn_model_options model_options(const ModelOptions& options, std::vector<const char*>* roots) {
  for (const std::string& root : options.allowed_roots) roots->push_back(root.c_str());
  evn_model_options o = EVN_MODEL_OPTIONS_INIT;
  o.external_dir = c_str_or_null(options.external_dir);
  o.allowed_roots = roots->data();
  o.allowed_root_count = static_cast<std::uint32_t>(roots->size());
  if (options.map_files) o.flags |= EVN_MODEL_MAP;
  return o;
}
// Completes names of dims that the info has cut. all[0] is the value at `first`.
template <typename F>
std::vector<ValueInfo> with_symbols(std::vector<ValueInfo> all, evn_model model, F f, std::size_t first = 0) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t axis = 0; axis < all[i].symbols.size(); ++axis) {
      if (all[i].symbols[axis].empty()) continue;
      all[i].symbols[axis] = text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
        return f(model, static_cast<std::uint32_t>(first + i), static_cast<std::uint32_t>(axis), b, c, s, e);
      });
    }
  }
  return all;
}
template <typename H, typename C, typename F, typename N>
std::vector<ValueInfo> values(H handle, C counted, F f, N name, std::size_t first = 0) {
  std::vector<ValueInfo> all(count(handle, counted));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(handle, f, name, first + i);
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
    return detail::with_symbols(detail::values(get(), evn_model_input_count, evn_model_get_input_info, evn_model_input_name),
                                get(), evn_model_input_symbol);
  }
  // Inputs that need not be given, since they have a default.
  std::vector<ValueInfo> defaults() const {
    const std::size_t first = detail::count(get(), evn_model_input_count);
    std::vector<ValueInfo> all =
        detail::values(get(), evn_model_default_count, evn_model_get_input_info, evn_model_input_name, first);
    return detail::with_symbols(std::move(all), get(), evn_model_input_symbol, first);
  }
  std::vector<ValueInfo> outputs() const {
    return detail::with_symbols(detail::values(get(), evn_model_output_count, evn_model_get_output_info, evn_model_output_name),
                                get(), evn_model_output_symbol);
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
  friend class Quantizer;
  friend class Trainer;
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
  // Names are whole; names of dims are cut to 63 bytes: those of the model's values are whole.
  std::vector<ValueInfo> inputs() const {
    return detail::values(get(), evn_session_input_count, evn_session_get_input_info, evn_session_input_name);
  }
  // Inputs that need not be given, since they have a default: they follow the others in what run takes.
  std::vector<ValueInfo> defaults() const {
    return detail::values(get(), evn_session_default_count, evn_session_get_input_info, evn_session_input_name, input_count());
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
  // For a model with one input.
  std::vector<Tensor> run(const Tensor& input, const RunOptions& options = {}) const {
    return run(Span<const Tensor>(&input, 1), options);
  }
  // By name: session.run({{"x", x}, {"y", y}}).
  std::vector<Tensor> run(std::initializer_list<NamedTensor> inputs, const RunOptions& options = {}) const {
    std::vector<evn_tensor> in(input_count());
    for (const NamedTensor& n : inputs) {
      const std::size_t index = find(evn_session_find_input, n.name);
      if (index >= in.size()) in.resize(index + 1);  // it has a default
      in[index] = n.tensor.get();
    }
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

  // For a model that takes or gives more than tensors.
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
    submit_handles(inputs, {}, options, o, nullptr);
    static_cast<void>(promise.release());  // the library has it now
    return outputs;
  }
  // As submit, for who takes its end from a queue, which gives the Request; `user` is what Request::user gives.
  void submit(Span<const Tensor> inputs, const Queue& queue, void* user, const RunOptions& options = {}) const {
    evn_submit_options o = EVN_SUBMIT_OPTIONS_INIT;
    o.queue = queue.get();
    o.user = user;
    submit_handles(inputs, {}, options, o, nullptr);
  }
  // As submit, for who waits for its end.
  Request request(Span<const Tensor> inputs, const RunOptions& options = {}) const {
    Request request;
    submit_handles(inputs, {}, options, EVN_SUBMIT_OPTIONS_INIT, request.handle_.out());
    return request;
  }
  // Into given tensors, which nobody may touch until it has ended; for empty ones Request::take gives new ones.
  Request request(Span<const Tensor> inputs, Span<const Tensor> outputs, const RunOptions& options = {}) const {
    Request request;
    submit_handles(inputs, outputs, options, EVN_SUBMIT_OPTIONS_INIT, request.handle_.out());
    return request;
  }
  // For a model that takes or gives more than tensors: Request::take_values gives its outputs.
  Request request_values(Span<const Value> inputs, const RunOptions& options = {}) const {
    std::vector<evn_value> in;
    for (const Value& v : inputs) in.push_back(v.get());
    const evn_run_options o = c_options(options);
    Request request;
    detail::check([&](evn_error* e) {
      return evn_session_submit_values(get(), in.data(), static_cast<std::uint32_t>(in.size()), nullptr,
                                       static_cast<std::uint32_t>(output_count()), &o, nullptr, request.handle_.out(), e);
    });
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
  // Runs both over the same inputs, and says how far apart the values of each node are; evn_session_compare has the keys.
  std::string compare(const Session& got, Span<const Tensor> inputs, Format format = Format::kText) const {
    std::vector<evn_tensor> in;
    for (const Tensor& t : inputs) in.push_back(t.get());
    return detail::text([&](char* b, std::size_t c, std::size_t* s, evn_error* e) {
      return evn_session_compare(get(), got.get(), in.data(), static_cast<std::uint32_t>(in.size()),
                                 static_cast<evn_format>(format), b, c, s, e);
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

  // `outputs`: none, or one for each of the model.
  void submit_handles(Span<const Tensor> inputs, Span<const Tensor> outputs, const RunOptions& options,
                      const evn_submit_options& submit, evn_request* request) const {
    std::vector<evn_tensor> in, out;
    in.reserve(inputs.size());
    for (const Tensor& t : inputs) in.push_back(t.get());
    for (const Tensor& t : outputs) out.push_back(t.get());
    const std::size_t count = out.empty() ? output_count() : out.size();
    const evn_run_options o = c_options(options);
    detail::check([&](evn_error* e) {
      return evn_session_submit(get(), in.data(), static_cast<std::uint32_t>(in.size()), out.empty() ? nullptr : out.data(),
                                static_cast<std::uint32_t>(count), &o, &submit, request, e);
    });
  }

  template <typename F>
  std::size_t find(F f, const char* name) const {
    std::uint32_t index = 0;
    detail::check([&](evn_error* e) { return f(get(), name, &index, e); });
    return index;
  }
};

}  // inline namespace
}  // namespace evener
#endif
