// Check that devices have room for the constants of their nodes, before anything is packed. docs/decisions/0073-memory-ladder.md
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// Throws EVN_ERROR_OUT_OF_MEMORY, with the first node for which there is none, where a device other than the CPU has no memory left
// for the constants of its nodes. Nothing has been packed yet.
void require_room(const CompiledGraph& c);

}  // namespace evn
