// evn_runtime_session.
#include "api/barrier.h"
#include "api/objects.h"

using namespace evn;

extern "C" {

evn_status evn_runtime_session(evn_runtime runtime, const char* name, evn_session* session, evn_error* error) {
  return guarded(error, [&] {
    const Pin<RuntimePtr> r(runtime);
    require(name != nullptr, "name");
    require(session != nullptr, "session");
    *session = static_cast<evn_session>(make_handle(r.object().deployed.get(*r, name)));
  });
}

}  // extern "C"
