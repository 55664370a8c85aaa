// Builds a plan from a signature's inputs to its outputs, node by node: for a run (plan.cc), and to estimate what one would take
// (estimate.cc). The planner that owns the builder decides which nodes there are, and their shapes.
#pragma once

#include "runtime/lower/plan_steps.h"

namespace evn {

class PlanBuilder {
 public:
  PlanBuilder(PlanWork& work, PlanRoots& roots) : w_(work), roots_(roots), former_(work), steps_(work, former_, roots) {}

  // Reserves memory for the steps of the nodes from PlanState::first_node to `end`: kernels keep addresses of descs.
  void reserve(std::size_t end);

  // Begins a plan that goes on from another one's state.
  void begin_part(const PlanState& before);

  // Begins the plan of its signature: constants, and the graph's inputs.
  void start();

  // Adds what a node that no earlier step computes needs: a step, or none.
  void add_node(std::int32_t index);

  // Brings output j of the graph to where it is wanted.
  void add_output(std::size_t j);

  // Makes `to` lie where `from` does.
  void share(ValueId from, ValueId to);

 private:
  void add_view(std::int32_t index);
  void add_early_outputs();

  PlanWork& w_;
  PlanRoots& roots_;
  StepFormer former_;
  PlanSteps steps_;
};

}  // namespace evn
