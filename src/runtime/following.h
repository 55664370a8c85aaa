// Sums that a kernel computes together with the node before them: which nodes these are.
#pragma once

#include "runtime/compile.h"

namespace evn {

// Fills in CompiledNode::bias and ::residual for kernels that take such sums. Devices and kernels are chosen already (placement).
void find_following_sums(CompiledGraph& c);

}  // namespace evn
