// The stage that has a run go on elsewhere when a device is lost in it.
#pragma once

#include <memory>

#include "runtime/session/run_stage.h"

namespace evn {

std::unique_ptr<RunStage> make_loss_stage();

}  // namespace evn
