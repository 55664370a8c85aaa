// What a plan is predicted to take, step by step: measured times of its steps where there are any, else estimates.
#pragma once

#include <vector>

#include "runtime/lower/plan.h"
#include "runtime/objects/cost_table.h"

namespace evn {

struct PlanCost {
  struct Step {
    double ns = 0;
    bool is_measured = true;
  };
  std::vector<Step> steps;      // as the plan's
  std::vector<double> slot_ns;  // per device slot: how long it is busy
  double total_ns = 0;          // of all steps, one after the other
  double end_ns = 0;            // with each device, and its copies, at work as soon as what it needs is there
  std::size_t unmeasured = 0;   // steps of kernels whose time is an estimate
  bool is_known = true;         // false: of some device nothing is known at all
  std::uint64_t key = 0;        // tells this plan from others
};

PlanCost cost_of(const CompiledGraph& graph, const Plan& plan, CostTables& tables);

}  // namespace evn
