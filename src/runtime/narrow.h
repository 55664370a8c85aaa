// Values that are stored as bfloat16 or float16: those that products of that type alone read, as the operand that they would round, or, of
// bfloat16, to add it to what they sum.
#pragma once

#include <vector>

#include "runtime/compile.h"

namespace evn {

// Per value, whether it may be; of a graph whose kernels and layouts are chosen. Empty: none.
std::vector<bool> find_narrow(const CompiledGraph& c);

}  // namespace evn
