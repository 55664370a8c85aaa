// The one place that puts a session together: its graph, and the stages around its runs in their order.
#pragma once

#include "runtime/session/session.h"

namespace evn {

// Makes a session of the model. `selections`: what the configuration and the caller select nodes by, for explain. Throws what
// compiling, splitting and batching throw.
std::shared_ptr<Session> make_session(const ModelPtr& model, SessionRequest request, const CacheConfig& cache = {},
                                      std::vector<NodeSelection> selections = {});

}  // namespace evn
