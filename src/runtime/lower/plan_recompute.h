// Fits a plan under a limit of its arenas: another order of its steps, then steps that run again, so that what they make need not
// be kept (memory/recompute.h). The same kernels with the same operands, and so the same bits: what draws random numbers does so by
// its node and the run's seed.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

// The plan has all its steps, and its places. Plans whose steps compute on several devices, and plans of several parts, are left as
// they are. Throws EVN_ERROR_LIMIT with the fewest bytes that were found to be enough.
void fit_under_limit(PlanWork& work, std::uint64_t limit);

}  // namespace evn
