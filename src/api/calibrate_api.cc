// evn_runtime_calibrate.
#include "api/barrier.h"
#include "api/objects.h"
#include "api/work_scope.h"
#include "runtime/cost/calibrate.h"

using namespace evn;

extern "C" {

evn_status evn_runtime_calibrate(evn_runtime runtime, evn_model model, const evn_calibrate_options* options, evn_format format,
                                 char* buffer, size_t capacity, size_t* size, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    if (format != EVN_FORMAT_TEXT && format != EVN_FORMAT_JSON) fail(EVN_ERROR_INVALID_ARGUMENT, "format is %d", format);
    if (buffer == nullptr) require(size != nullptr, "size");
    constexpr evn_calibrate_options kDefaults = EVN_CALIBRATE_OPTIONS_INIT;
    const evn_calibrate_options o = read_options(options, kDefaults, sizeof(evn_calibrate_options));
    if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    ModelPtr measured;
    if (model != nullptr) measured = *Pin<ModelPtr>(model);
    if (measured != nullptr && measured->runtime != *r) fail(EVN_ERROR_INVALID_ARGUMENT, "the model belongs to another runtime");
    const WorkScope scope(WorkScope::token_of(o.cancel), o.deadline_ns, "the time to calibrate is over",
                          "the calibration was cancelled");
    write_text(render_calibration(calibrate(*r, measured), format), buffer, capacity, size);
  });
}

}  // extern "C"
