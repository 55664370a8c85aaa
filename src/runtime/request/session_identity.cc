#include "runtime/request/session_identity.h"

#include "runtime/session/session.h"

namespace evn {

void apply_concurrency(Session& session) noexcept {
  SessionRequests& requests = session.identity()->requests;
  requests.set_most_running(session.concurrency());
  session.identity()->group->set_limit(session.concurrency());
  requests.set_depth(session.compiled().pipeline_depth);
}

}  // namespace evn
