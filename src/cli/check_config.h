// evener check-config.
#pragma once

#include "cli/arguments.h"

namespace evn::cli {

int run_check_config(const Arguments& arguments);

}  // namespace evn::cli
