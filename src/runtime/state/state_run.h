// The stage of runs with a state: it gives the inputs that the state has, and takes the outputs that go into it.
// docs/decisions/0063-states.md
#pragma once

#include <memory>

#include "runtime/session/run_stage.h"

namespace evn {

std::unique_ptr<RunStage> make_state_stage();

}  // namespace evn
