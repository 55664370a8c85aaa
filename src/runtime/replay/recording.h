// The stage that writes the inputs of runs into files, from which `evener run --replay` and numpy.load read them.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "runtime/session/run_stage.h"

namespace evn {

// A run's inputs are written before it begins, so that those of a run that crashes or hangs are there. `name`: of the session, with
// which names of files begin. Runs with a state, or with an input that is no tensor, are left out. Where a file cannot be written
// the log tells, and no more are.
std::unique_ptr<RunStage> make_recording_stage(const RecordingConfig& config, const std::string& name);

}  // namespace evn
