// `evener explain`.
#pragma once

#include "cli/arguments.h"
#include "cli/library.h"

namespace evn::cli {

int run_explain(const Arguments& arguments);

inline constexpr Option kExplainOptions[] = {
    kShapeOption,
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
    {"--dot", nullptr, "print the graph in Graphviz's language, coloured by device"},
    {"--svg", nullptr, "print the graph as an SVG picture, coloured by device"},
    {"--html", "FILE", "write a page on which the graph can be looked through, to open in a browser"},
    {"--run", nullptr, "run the model on a pattern; with --html the page has the times of one run"},
    {"--assert", "ASSERTION",
     "end with 1 unless the nodes are where this says: op(NAME), name(GLOB) or all,\nthen = or !=, then a device, as in "
     "'op(Conv)=gpu'; may be repeated",
     true},
};

}  // namespace evn::cli
