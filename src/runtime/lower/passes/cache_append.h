// Which caches of a graph can be appended to in place.
#pragma once

#include "runtime/lower/compile.h"

namespace evn {

// The axis on which `output`, an output of the graph, is `input` with something new behind it, so that a state can hold both in
// pages. -1: *why says why that is not known.
int append_axis(const CompiledGraph& c, ValueId output, ValueId input, const char** why);

}  // namespace evn
