// `evener bench` and `evener trace`: how long runs take, and where the time goes.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kBenchOptions[] = {
    kShapeOption,
    kInputOption,
    {"--runs", "N", "how often to run after the first time; 20 when not given"},
    {"--layers", nullptr, "a table of the time of each node as well, from further runs that are traced"},
    kConfigOption,
    kDeviceOption,
    kPrecisionOption,
    kKeepFp32Option,
    kDisablePassOption,
    kNumericsOption,
    kCacheOption,
    kMapCacheOption,
    kThreadsOption,
    kJsonOption,
};
inline constexpr Option kTraceOptions[] = {
    {"-o", "FILE", "where the trace goes; standard output when not given"},
    kShapeOption,
    kInputOption,
    {"--runs", "N", "how many runs to trace, after one that is not; 3 when not given"},
    {"--events", "N", "room for N events; 65536 when not given"},
    kConfigOption,
    kDeviceOption,
    kPrecisionOption,
    kKeepFp32Option,
    kDisablePassOption,
    kNumericsOption,
    kCacheOption,
    kMapCacheOption,
    kThreadsOption,
};

int run_bench(const Arguments& arguments);
int run_trace(const Arguments& arguments);

}  // namespace evn::cli
