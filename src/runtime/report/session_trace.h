// Reports from a session's trace.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/session.h"

namespace evn {

// The latest trace as text or JSON. Throws EVN_ERROR_WRONG_STATE where there was none.
std::string render_trace(const Session& session, evn_format format);
// Nanoseconds in the steps of each node of the session's graph, over all runs of the latest trace. Throws EVN_ERROR_WRONG_STATE.
std::vector<std::uint64_t> node_times(const Session& session);

}  // namespace evn
