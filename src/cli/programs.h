// evener programs.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kProgramsOptions[] = {
    {"-o", "FOLDER", "where the binaries go; made where it is missing"},
    {"--device", "DEVICE", "the OpenCL device: a name of the configuration, gpu (the default), opencl:0"},
    {"--sources", nullptr, "instead of binaries, texts of which scripts/make_il.py makes SPIR-V"},
    kConfigOption,
    kThreadsOption,
};

int run_programs(const Arguments& arguments);

}  // namespace evn::cli
