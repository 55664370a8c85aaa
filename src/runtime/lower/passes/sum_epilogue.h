#pragma once

#include "runtime/lower/step_former.h"

namespace evn {

// Takes the sums that follow the node into the draft, as far as the shapes allow it. `desc`: what the node's kernel, or its part of
// a cascade, is asked about; its inputs `at` and behind it have been left for their operands.
bool add_fused_operands(PlanWork& p, StepFormer& f, std::int32_t node, OpDesc* desc, std::size_t at, std::uint8_t views);

}  // namespace evn
