// What tells the steps of plans from each other where it is about their cost.
#pragma once

#include "runtime/lower/plan.h"
#include "runtime/objects/cost_table.h"

namespace evn {

// The features of a kernel step or a re-layout.
StepFeatures features_of(const CompiledGraph& graph, const PlanStep& step);

}  // namespace evn
