// What a configuration names and changes: evn_runtime_session, evn_runtime_reconfigure.
#include "api/barrier.h"
#include "api/config_source.h"
#include "api/objects.h"
#include "api/work_scope.h"

using namespace evn;

extern "C" {

evn_status evn_runtime_reconfigure(evn_runtime runtime, const evn_reconfigure_options* options, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    constexpr evn_reconfigure_options kDefaults = EVN_RECONFIGURE_OPTIONS_INIT;
    const evn_reconfigure_options o = read_options(options, kDefaults, sizeof(evn_reconfigure_options));
    if (o.reserved != 0) fail(EVN_ERROR_INVALID_ARGUMENT, "reserved is not 0");
    const WorkScope scope(WorkScope::token_of(o.cancel), o.deadline_ns, "the time to reconfigure is over",
                          "the reconfiguration was cancelled");
    (*r)->live().reconfigure(*r, read_config({o.config_path, o.config_text, o.config_size}));
    r.object().deployed.keep_named(*(*r)->settings());
  });
}

evn_status evn_runtime_session(evn_runtime runtime, const char* name, evn_session* session, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(name != nullptr, "name");
    require(session != nullptr, "session");
    *session = static_cast<evn_session>(make_handle(r.object().deployed.get(*r, name)));
  });
}

}  // extern "C"
