// Steps of a plan that run kernels: formed steps (step_former.h) and their memory (plan_roots.h).
#pragma once

#include "runtime/lower/plan_roots.h"

namespace evn {

class PlanSteps : public PlanRoots {
 public:
  using PlanRoots::PlanRoots;

  // Adds the step that the node begins, whose shapes are known, unless its outputs are in place already.
  void add_kernel(std::int32_t index);

 private:
  std::size_t number_of(const Node& node) const { return static_cast<std::size_t>(&node - graph_.nodes.data()); }

  // Makes a step whose descs, parts and constants the plan owns out of the draft.
  PlanStep keep_draft();
  // Gives a cascade the layouts and packed copies of its parts.
  void keep_stages(PlanStep* step);

  // Finds the roots of the draft's operands.
  void find_inputs(PlanStep* step);
  std::int32_t paged_root(ValueId v);

  // Adds the step, with the buffers of its inputs, unless there is nothing to write.
  void add_step(PlanStep* step);

  std::vector<std::int32_t> input_roots_;  // work space of one node
};

}  // namespace evn
