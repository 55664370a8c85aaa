// Another order of a plan's steps, in which fewer bytes live at a time: the same kernels with the same operands, and so the same
// bits.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

// Orders the steps of a plan that the host runs alone and that no other goes on from; others are left as they are. The roots have
// their lives by the new order, and no places yet. Returns how many bytes less live at the worst moment: 0: the order is what it
// was.
std::size_t order_steps(const CompiledGraph& graph, Plan* plan, PlanState* state);

}  // namespace evn
