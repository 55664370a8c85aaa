// Making a session by its options, for evn_session_create and for modules.
#pragma once

#include <cstdint>

#include "evener/evener.h"

namespace evn {

// `arena_limit`: SessionRequest's. Throws what evn_session_create reports.
void create_session(evn_runtime runtime, evn_model model, const evn_session_options* options, std::uint64_t arena_limit,
                    evn_session* session);

}  // namespace evn
