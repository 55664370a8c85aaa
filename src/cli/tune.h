// evener tune.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kTuneDeviceOption = {"--device", "opencl:N", "the OpenCL device; without: opencl:0. Not with --config"};
inline constexpr Option kTuneConfigOption = {"--config", "FILE",
                                             "the YAML configuration, instead of --device: its OpenCL devices measure\n"
                                             "that have `tuning: measure`"};
inline constexpr Option kTuneOptions[] = {kTuneDeviceOption, kTuneConfigOption, kPrecisionOption,
                                          kShapeOption,      kInputOption,      kJsonOption};

int run_tune(const Arguments& arguments);

}  // namespace evn::cli
