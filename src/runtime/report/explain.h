// The text of evn_session_explain: the placement with reasons, the copies of the latest plan, and memory per device.
#pragma once

#include <string>

#include "runtime/session/session.h"

namespace evn {

std::string explain(const Session& session, evn_format format);

}  // namespace evn
