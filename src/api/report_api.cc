// Texts, pictures and traces of what a runtime, its models and its sessions do.
#include "api/barrier.h"
#include "api/model_source.h"
#include "api/objects.h"
#include "api/run_arguments.h"
#include "evener/request.h"
#include "runtime/lower/pass_list.h"
#include "runtime/report/compare.h"
#include "runtime/report/explain.h"
#include "runtime/report/inspect.h"
#include "runtime/report/session_trace.h"
#include "runtime/report/statistics.h"

namespace evn {
namespace {

InspectRequest read_request(const char* path, const evn_inspect_options* options) {
  const evn_inspect_options defaults = EVN_INSPECT_OPTIONS_INIT;
  const evn_inspect_options o = read_options(options, defaults, sizeof(evn_inspect_options));
  InspectRequest request;
  request.source = read_source(path, o);
  require(o.shapes != nullptr || o.shape_count == 0, "shapes");
  for (uint32_t i = 0; i < o.shape_count; ++i) {
    const evn_input_shape& s = o.shapes[i];
    require(s.name != nullptr, "the name of a shape");
    require(s.dims != nullptr || s.rank == 0, "dims");
    if (s.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    if (s.rank > EVN_MAX_RANK) fail(EVN_ERROR_LIMIT, "rank is %u, the most is %d", s.rank, EVN_MAX_RANK);
    const Shape shape(std::span<const std::int64_t>(s.dims, s.rank));
    if (!shape.is_known()) fail(EVN_ERROR_INVALID_ARGUMENT, "a dim of input \"%s\" is negative", s.name);
    request.shapes.emplace_back(s.name, shape);
  }
  return request;
}

// Session that runs with the inputs, and their values.
struct ComparedSession {
  ComparedSession(const SessionPin& session, std::span<const evn_tensor> inputs) {
    check_argument_counts(*session, static_cast<uint32_t>(inputs.size()), static_cast<uint32_t>(session->graph().outputs.size()));
    RunRequest request;
    open = session_for(session.shared(), inputs.data(), static_cast<uint32_t>(inputs.size()), &request);
    values.resize(open->graph().inputs.size());
    take_arguments<Tensors, evn_tensor>(*open, request, inputs, nullptr, values, {});
  }
  Comparand comparand() const { return {open.get(), values}; }

  SessionPtr open;
  std::vector<RunValue> values;
};

// The inputs without the NULL slots at the end, which stand for defaults: the other model may have none.
std::span<const evn_tensor> without_defaults(const Session& session, std::span<const evn_tensor> inputs) {
  const std::size_t required = session.compiled().model->required_inputs();
  while (inputs.size() > required && inputs.back() == nullptr) inputs = inputs.first(inputs.size() - 1);
  return inputs;
}

// Throws if an input with a default is given that the other model does not have at the same place.
void check_defaults(const Session& expected, const Session& got, std::span<const evn_tensor> inputs) {
  const LoadedModel& model = *expected.compiled().model;
  const std::vector<InputDefault>&own = model.model.defaults, &others = got.compiled().model->model.defaults;
  for (std::size_t d = 0; d < own.size() && model.required_inputs() + d < inputs.size(); ++d) {
    const std::string& name = own[d].declared.name;
    if (inputs[model.required_inputs() + d] == nullptr || (d < others.size() && others[d].declared.name == name)) continue;
    fail(EVN_ERROR_INVALID_ARGUMENT, "input \"%s\" is given, which has no default in the model of the other session", name.c_str());
  }
}

}  // namespace
}  // namespace evn

using namespace evn;

extern "C" {

evn_status evn_describe_passes(evn_format format, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(describe_passes(format), buffer, capacity, size);
  });
}

evn_status evn_session_explain(evn_session session, evn_format format, char* buffer, size_t capacity, size_t* size,
                               evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    if (format < EVN_FORMAT_TEXT || format > EVN_FORMAT_SVG) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(explain(*s, format), buffer, capacity, size);
  });
}

evn_status evn_session_compare(evn_session expected, evn_session got, const evn_tensor* inputs, uint32_t input_count,
                               evn_format format, char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const SessionPin a(expected), b(got);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    require(inputs != nullptr || input_count == 0, "inputs");
    check_argument_counts(*a, input_count, static_cast<uint32_t>(a->graph().outputs.size()));
    const std::span<const evn_tensor> given = without_defaults(*a, std::span(inputs, input_count));
    check_defaults(*a, *b, given);
    const ComparedSession expected_session(a, given), got_session(b, given);
    write_text(compare_sessions(expected_session.comparand(), got_session.comparand(), format), buffer, capacity, size);
  });
}

evn_status evn_session_trace_start(evn_session session, uint32_t event_capacity, evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    if (event_capacity == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "event_capacity is 0");
    s->tracing().start(s->shared_graph(), event_capacity);
  });
}

evn_status evn_session_trace_stop(evn_session session, evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    s->tracing().stop();
  });
}

evn_status evn_session_get_trace(evn_session session, evn_format format, char* buffer, size_t capacity, size_t* size,
                                 evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(render_trace(*s, format), buffer, capacity, size);
  });
}

evn_status evn_model_inspect(evn_runtime runtime, const char* path, const evn_inspect_options* options, evn_format format,
                             char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    if (buffer == nullptr) require(size != nullptr, "size");
    write_text(render_inspection(inspect_model(**r, read_request(path, options)), format), buffer, capacity, size);
  });
}

evn_status evn_runtime_describe_devices(evn_runtime runtime, evn_format format, char* buffer, size_t capacity, size_t* size,
                                        evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text((*r)->describe_devices(format), buffer, capacity, size);
  });
}

evn_status evn_session_get_statistics(evn_session session, evn_format format, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(describe_statistics(s->identity()->statistics.read(), format), buffer, capacity, size);
  });
}

evn_status evn_runtime_get_statistics(evn_runtime runtime, evn_format format, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    if (format == EVN_FORMAT_PROMETHEUS) return write_text(prometheus_text(**r), buffer, capacity, size);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(describe_statistics(**r, format), buffer, capacity, size);
  });
}

}  // extern "C"
