// evn_session_*.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "api/barrier.h"
#include "api/objects.h"
#include "api/run_arguments.h"
#include "api/value_info.h"
#include "api/work_scope.h"
#include "runtime/request/session_identity.h"

namespace {

using namespace evn;

void find_value(evn_session session, bool inputs, const char* name, uint32_t* index) {
  const SessionPin s(session);
  require(name != nullptr, "name");
  require(index != nullptr, "index");
  const LoadedModel& model = *s->compiled().model;
  const std::size_t count = inputs ? model.required_inputs() + model.model.defaults.size() : model.graph().outputs.size();
  std::string names;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& have = value_at(model, inputs, static_cast<uint32_t>(i)).name;
    if (have == name) {
      *index = static_cast<uint32_t>(i);
      return;
    }
    if (names.size() < 256) names += (i > 0 ? ", " : "") + have;
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "there is no %s \"%s\"; there are: %s", inputs ? "input" : "output", name, names.c_str());
}

template <typename Kind, typename Handle>
void run(evn_session session, const Handle* inputs, uint32_t input_count, Handle* outputs, uint32_t output_count,
         const evn_run_options* options, OutputListener listener = {}) {
  const SessionPin pin(session);
  pin->identity()->requests.require_not_forked();
  check_argument_counts(*pin, input_count, output_count);
  RunOptions o = read_run_options(options, pin->graph());
  o.request.listener = listener;
  require(inputs != nullptr || input_count == 0, "inputs");
  require(outputs != nullptr || output_count == 0, "outputs");
  const SessionPtr s = session_for(pin.shared(), inputs, input_count, &o.request);
  // Shared pointers keep the values until the run has ended, whatever is released meanwhile.
  SmallArray<RunValue> in(s->graph().inputs.size(), s->spare_blocks());
  SmallArray<RunValue> out(output_count, s->spare_blocks());
  take_arguments<Kind>(*s, o.request, std::span(inputs, input_count), outputs, in.span(), out.span());
  s->run(in.span(), out.span(), o.request);
  give_outputs<Kind>(s->runtime(), out.span(), outputs, [&](std::size_t j) { return outputs[j] == nullptr && out[j]; });
}

// The cache that the options give; none: the configuration's.
std::optional<CacheConfig> cache_of(const evn_session_options& o) {
  constexpr uint32_t kFlags = EVN_CACHE_READ_ONLY | EVN_CACHE_MAP;
  if ((o.cache_flags & ~kFlags) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "cache_flags is %u", o.cache_flags);
  if (o.cache_file != nullptr)
    return CacheConfig{o.cache_file, (o.cache_flags & EVN_CACHE_READ_ONLY) == 0, (o.cache_flags & EVN_CACHE_MAP) != 0};
  if (o.cache_flags != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "cache_flags is %u without a cache_file", o.cache_flags);
  return std::nullopt;
}

// How requests are joined; none: as the configuration says.
std::optional<BatchingConfig> batching_of(const evn_session_options& options) {
  if (options.batching == nullptr) return std::nullopt;
  static constexpr evn_batching_options defaults = EVN_BATCHING_OPTIONS_INIT;
  const evn_batching_options o = read_options(options.batching, defaults, sizeof(evn_batching_options));
  if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved of batching is not 0");
  if (o.max_batch < 2 || o.max_batch > kMostMaxBatch) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "batching.max_batch is %d, expected 2 .. %d", o.max_batch, kMostMaxBatch);
  }
  require(o.buckets != nullptr || o.bucket_count == 0, "batching.buckets");
  BatchingConfig batching;
  batching.max_batch = o.max_batch;
  batching.max_delay_ns = o.max_delay_ns;
  if (o.mask != nullptr) batching.mask = o.mask;
  batching.buckets.assign(o.buckets, o.buckets + o.bucket_count);
  if (const char* const why = batching.why_wrong()) fail(EVN_ERROR_INVALID_ARGUMENT, "batching: %s", why);
  return batching;
}

std::vector<std::string> names_of(const char* const* names, uint32_t count, const char* what) {
  require(names != nullptr || count == 0, what);
  std::vector<std::string> all;
  for (uint32_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) fail(EVN_ERROR_INVALID_ARGUMENT, "entry %u of %s is NULL", i, what);
    all.emplace_back(names[i]);
  }
  return all;
}

SessionRequest request_of(const evn_session_options& o) {
  if (o.precision < EVN_PRECISION_DEFAULT || o.precision > EVN_PRECISION_AUTO) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "precision is %d", static_cast<int>(o.precision));
  }
  if (o.numerics < EVN_NUMERICS_DEFAULT || o.numerics > EVN_NUMERICS_STRICT) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "numerics is %d", static_cast<int>(o.numerics));
  }
  if (o.products < EVN_PRODUCTS_DEFAULT || o.products > EVN_PRODUCTS_MEASURED) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "products is %d", static_cast<int>(o.products));
  }
  if (o.memory < EVN_MEMORY_PLAN_DEFAULT || o.memory > EVN_MEMORY_PLAN_SMALL) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "memory is %d", static_cast<int>(o.memory));
  }
  if (o.arenas < EVN_ARENAS_DEFAULT || o.arenas > EVN_ARENAS_SHARED) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "arenas is %d", static_cast<int>(o.arenas));
  }
  SessionRequest request(o.device != nullptr ? o.device : "");
  if (o.arenas != EVN_ARENAS_DEFAULT) request.share_arenas = o.arenas == EVN_ARENAS_SHARED;
  request.memory = static_cast<MemoryPlan>(o.memory);
  request.numerics = static_cast<Numerics>(o.numerics);
  request.precision = static_cast<Precision>(o.precision);
  request.products = static_cast<Products>(o.products);
  request.keep_fp32 = names_of(o.keep_fp32, o.keep_fp32_count, "keep_fp32");
  request.disabled_passes = names_of(o.disabled_passes, o.disabled_pass_count, "disabled_passes");
  if (o.concurrency < 0) fail(EVN_ERROR_INVALID_ARGUMENT, "concurrency is %d", o.concurrency);
  request.concurrency = o.concurrency;
  request.idle_arena_bytes = o.idle_arena_bytes;
  request.arena_limit = o.arena_limit;
  if (o.name != nullptr) request.name = o.name;
  return request;
}

}  // namespace

namespace evn {

void run_listened(evn_session session, std::span<const evn_tensor> inputs, std::span<evn_tensor> outputs,
                  const evn_run_options* options, OutputListener listener) {
  run<Tensors>(session, inputs.data(), static_cast<uint32_t>(inputs.size()), outputs.data(), static_cast<uint32_t>(outputs.size()),
               options, listener);
}

void refuse_other_than_tensors(const Graph& graph, std::span<const uint8_t> skipped) {
  for (std::size_t j = 0; j < graph.outputs.size(); ++j) {
    const Value& value = graph.values[graph.outputs[j]];
    if (!value.wraps || is_skipped(skipped, j)) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is of type %s: functions of values give it", j, value.name.c_str(),
         TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
  }
}

void check_argument_counts(const Session& session, uint32_t input_count, uint32_t output_count) {
  const LoadedModel& model = *session.compiled().model;
  const std::size_t inputs = model.required_inputs(), defaults = model.model.defaults.size();
  const std::size_t outputs = model.graph().outputs.size();
  if (input_count >= inputs && input_count <= inputs + defaults && output_count == outputs) return;
  if (defaults == 0) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs and %zu outputs, %u and %u are given", inputs, outputs, input_count,
         output_count);
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs, %zu more with a default, and %zu outputs; %u and %u are given",
       inputs, defaults, outputs, input_count, output_count);
}

SessionPtr session_for(const SessionPtr& session, std::span<const uint8_t> given, RunRequest* request) {
  if (std::find(given.begin(), given.end(), 1) == given.end()) return session;
  // The timeout of the run covers the compilation that it needs first; `run_time` of the configuration bounds each of the two.
  request->stop.join_timeout(std::exchange(request->timeout_ns, 0));
  Cancel cancel;
  cancel.join(request->stop);
  cancel.join_timeout(session->compiled().limits().run_time_ns);
  const CancelScope scope(cancel);
  return session->open_inputs().with(given);
}

std::size_t place_of_default(const Session& session, std::size_t number) {
  const std::vector<InputDefault>& defaults = session.compiled().model->model.defaults;
  return number < defaults.size() && defaults[number].input >= 0 ? static_cast<std::size_t>(defaults[number].input) : SIZE_MAX;
}

void check_not_skipped(const Graph& graph, std::span<const uint8_t> skipped, std::size_t j) {
  if (!is_skipped(skipped, j)) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is skipped, and a tensor is given for it", j,
       graph.values[graph.outputs[j]].name.c_str());
}

namespace {

// Empty where no output is skipped.
std::vector<uint8_t> read_skipped(const uint8_t* skipped, const Graph& graph) {
  const std::size_t count = skipped != nullptr ? graph.outputs.size() : 0;
  bool any = false;
  for (std::size_t j = 0; j < count; ++j) {
    any |= skipped[j] != 0;
    if (skipped[j] <= 1) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "skipped_outputs[%zu], of output \"%s\", is %u, expected 0 or 1", j,
         graph.values[graph.outputs[j]].name.c_str(), static_cast<unsigned>(skipped[j]));
  }
  return any ? std::vector<uint8_t>(skipped, skipped + count) : std::vector<uint8_t>();
}

void create_session(evn_runtime runtime, evn_model model, const evn_session_options* options, evn_session* session) {
  const Pin<RuntimePtr> r(runtime);
  const Pin<ModelPtr> m(model);
  require(session != nullptr, "session");
  const evn_session_options defaults = EVN_SESSION_OPTIONS_INIT;
  const evn_session_options o = read_options(options, defaults, offsetof(evn_session_options, cache_file));
  for (const std::uint32_t reserved : {o.reserved, o.reserved1, o.reserved2, o.reserved3, o.reserved4, o.reserved5, o.reserved6}) {
    if (reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
  }
  if ((*m)->runtime != *r) fail(EVN_ERROR_INVALID_ARGUMENT, "the model belongs to another runtime");
  const WorkScope scope(WorkScope::token_of(o.cancel), o.deadline_ns, "the time to make the session is over",
                        "the making of the session was cancelled");
  const ModelPtr open = with_open_inputs(*m, names_of(o.overridable, o.overridable_count, "overridable"));
  auto recipe = std::make_unique<GivenRecipe>(open, request_of(o), batching_of(o), cache_of(o));
  *session = static_cast<evn_session>(make_handle(LiveSession::create(*r, std::move(recipe))));
}

}  // namespace

RunOptions read_run_options(const evn_run_options* options, const Graph& graph) {
  constexpr uint32_t kFlags = EVN_RUN_OUTPUTS_ON_DEVICE | EVN_RUN_OVERWRITE_INPUTS;
  static constexpr evn_run_options defaults = EVN_RUN_OPTIONS_INIT;
  const evn_run_options o = read_options(options, defaults, offsetof(evn_run_options, random_seed));
  if (o.allow_copies > 1) fail(EVN_ERROR_INVALID_ARGUMENT, "allow_copies is %u", o.allow_copies);
  if ((o.flags & ~kFlags) != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "flags is %u", o.flags);
  if (o.priority < EVN_PRIORITY_LOWEST || o.priority > EVN_PRIORITY_HIGHEST) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "priority is %d, expected %d .. %d", o.priority, EVN_PRIORITY_LOWEST, EVN_PRIORITY_HIGHEST);
  }
  const CancelPtr token = o.cancel != nullptr ? *Pin<CancelPtr>(o.cancel) : nullptr;
  RunRequest request;
  request.allow_copies = o.allow_copies != 0;
  request.timeout_ns = o.timeout_ns;
  request.random_seed = o.random_seed;
  request.stop = {o.deadline_ns, token != nullptr ? &token->requested : nullptr};
  request.priority = o.priority;
  request.outputs_on_device = (o.flags & EVN_RUN_OUTPUTS_ON_DEVICE) != 0;
  request.overwrite_inputs = (o.flags & EVN_RUN_OVERWRITE_INPUTS) != 0;
  request.skipped = read_skipped(o.skipped_outputs, graph);
  if (o.state != nullptr) {
    const Pin<StatePtr> state(o.state);
    request.state = State::lease(*state);
  }
  return {std::move(request), token};
}

}  // namespace evn

extern "C" {

evn_status evn_session_create(evn_runtime runtime, evn_model model, const evn_session_options* options, evn_session* session,
                              evn_error* error) {
  return guarded(error, [&] { create_session(runtime, model, options, session); });
}

evn_status evn_session_release(evn_session session) { return release_handle(session, HandleKind::kSession); }

evn_status evn_session_input_count(evn_session session, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_values(*SessionPin(session)->compiled().model, true, count); });
}

evn_status evn_session_output_count(evn_session session, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_values(*SessionPin(session)->compiled().model, false, count); });
}

evn_status evn_session_default_count(evn_session session, uint32_t* count, evn_error* error) {
  return guarded(error, [&] { count_defaults(*SessionPin(session)->compiled().model, count); });
}

evn_status evn_session_get_input_info(evn_session session, uint32_t index, evn_value_info* info, evn_error* error) {
  return guarded(error, [&] { describe_value(*SessionPin(session)->compiled().model, true, index, info); });
}

evn_status evn_session_get_output_info(evn_session session, uint32_t index, evn_value_info* info, evn_error* error) {
  return guarded(error, [&] { describe_value(*SessionPin(session)->compiled().model, false, index, info); });
}

evn_status evn_session_input_name(evn_session session, uint32_t index, char* buffer, size_t capacity, size_t* size,
                                  evn_error* error) {
  return guarded(error,
                 [&] { write_text(value_at(*SessionPin(session)->compiled().model, true, index).name, buffer, capacity, size); });
}

evn_status evn_session_output_name(evn_session session, uint32_t index, char* buffer, size_t capacity, size_t* size,
                                   evn_error* error) {
  return guarded(error,
                 [&] { write_text(value_at(*SessionPin(session)->compiled().model, false, index).name, buffer, capacity, size); });
}

evn_status evn_session_find_input(evn_session session, const char* name, uint32_t* index, evn_error* error) {
  return guarded(error, [&] { find_value(session, true, name, index); });
}

evn_status evn_session_find_output(evn_session session, const char* name, uint32_t* index, evn_error* error) {
  return guarded(error, [&] { find_value(session, false, name, index); });
}

evn_status evn_session_run(evn_session session, const evn_tensor* inputs, uint32_t input_count, evn_tensor* outputs,
                           uint32_t output_count, const evn_run_options* options, evn_error* error) {
  return guarded(error, [&] { run<Tensors>(session, inputs, input_count, outputs, output_count, options); });
}

evn_status evn_session_run_values(evn_session session, const evn_value* inputs, uint32_t input_count, evn_value* outputs,
                                  uint32_t output_count, const evn_run_options* options, evn_error* error) {
  return guarded(error, [&] { run<Values>(session, inputs, input_count, outputs, output_count, options); });
}

evn_status evn_session_get_memory_stats(evn_session session, evn_session_memory_stats* stats, evn_error* error) {
  return guarded(error, [&] {
    const SessionPin pin(session);
    const SessionMemoryStats s = pin->memory_stats();
    evn_session_memory_stats full = EVN_SESSION_MEMORY_STATS_INIT;
    full.arena_bytes = s.arenas.bytes;
    full.idle_arena_bytes = s.arenas.idle_bytes;
    full.peak_arena_bytes = s.arenas.peak_bytes;
    full.arena_count = s.arenas.count;
    full.arenas_made = s.arenas.made;
    full.arenas_reused = s.arenas.reused;
    full.arenas_dropped = s.arenas.dropped;
    full.plan_count = s.plan_count;
    full.plan_bytes = s.plan_bytes;
    full.state_bytes = pin->identity()->state_bytes.load(std::memory_order_relaxed);
    write_info(stats, full);
  });
}

}  // extern "C"
