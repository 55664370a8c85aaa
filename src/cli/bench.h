// `evener bench` and `evener trace`: how long runs take, by one caller and under load, and where the time goes.
#pragma once

#include "cli/library.h"

namespace evn::cli {

inline constexpr Option kBenchOptions[] = {
    kShapeOption,
    kInputOption,
    {"--runs", "N", "how often to run after the first time; 20 when not given"},
    {"--clients", "N", "load: N clients at a time, each of which asks again when it has been answered"},
    {"--rate", "R",
     "load: R requests per second on average, that come independently of each other; with\n--clients no more than so many at a "
     "time"},
    {"--duration", "S", "how many seconds of load; 10 when not given"},
    {"--mix", "FILE", "load on several models, a line for each: see above"},
    {"--priority", "P", "priority of the requests, -7 to 7"},
    {"--deadline", "MS", "requests end when so much time has gone since their arrival"},
    {"--sync", nullptr, "clients are threads that call evn_session_run; else requests are submitted"},
    {"--svg", "FILE", "draw the latency over percentiles"},
    {"--html", "FILE", "the same picture in a page, with a table"},
    {"--layers", nullptr, "a table of the time of each node as well, from further runs that are traced"},
    kConfigOption,
    kDeviceOption,
    kPrecisionOption,
    kKeepFp32Option,
    kDisablePassOption,
    kNumericsOption,
    kProductsOption,
    kMemoryOption,
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
    kProductsOption,
    kMemoryOption,
    kCacheOption,
    kMapCacheOption,
    kThreadsOption,
};

int run_bench(const Arguments& arguments);
// Whether `evener bench` is asked for load; throws a usage Failure where options do not go together.
bool wants_load(const Arguments& arguments);
int run_load_bench(const Arguments& arguments);
int run_trace(const Arguments& arguments);

}  // namespace evn::cli
