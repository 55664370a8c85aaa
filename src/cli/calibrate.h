// evener calibrate.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kCalibrateOptions[] = {kConfigOption, kThreadsOption, kJsonOption};

int run_calibrate(const Arguments& arguments);

}  // namespace evn::cli
