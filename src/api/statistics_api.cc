// evn_session_get_statistics, evn_runtime_get_statistics.
#include "api/barrier.h"
#include "api/objects.h"
#include "evener/request.h"
#include "runtime/report/statistics.h"

using namespace evn;

extern "C" {

evn_status evn_session_get_statistics(evn_session session, evn_format format, char* buffer, size_t capacity, size_t* size,
                                      evn_error* error) {
  return guarded(error, [&] {
    const SessionPin s(session);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    write_text(describe_statistics(s->statistics().read(), format), buffer, capacity, size);
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
