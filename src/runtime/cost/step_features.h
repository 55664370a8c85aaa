// What tells the steps of plans from each other where it is about their cost.
#pragma once

#include "runtime/cost/cost_table.h"
#include "runtime/lower/plan.h"

namespace evn {

// The features of a kernel step or a re-layout.
StepFeatures features_of(const CompiledGraph& graph, const PlanStep& step);

}  // namespace evn
