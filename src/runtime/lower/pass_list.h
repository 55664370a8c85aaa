// All passes by name: the rewrites of a model's graph (graph/passes) and those across the nodes of a session
// (runtime/lower/pass.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace evn {

class JsonWriter;

// Throws `status` where a name is none, or of a rewrite where only `lowering` passes can be switched off. `where` begins the
// message.
void check_pass_names(const std::vector<std::string>& names, bool lowering_only, evn_status status, const std::string& where);

// What evn_describe_passes writes.
std::string describe_passes(evn_format format);

// Names of the rewrites of `rewrites` (Node::rewrites) and the lowering passes of `lowering` (PlanStep::passes).
std::vector<const char*> pass_names(std::uint32_t rewrites, std::uint32_t lowering);

}  // namespace evn
