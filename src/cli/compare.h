// evener compare.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kCompareOptions[] = {
    {"--with", "MODEL", "another model, for example the same quantized; without it MODEL in --precision, --numerics or --products"},
    kShapeOption,
    kInputOption,
    kConfigOption,
    kDeviceOption,
    kPrecisionOption,
    kKeepFp32Option,
    kDisablePassOption,
    kNumericsOption,
    kProductsOption,
    kThreadsOption,
    kJsonOption,
};

int run_compare(const Arguments& arguments);

}  // namespace evn::cli
