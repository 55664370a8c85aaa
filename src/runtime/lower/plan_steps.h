// Steps of a plan that run kernels: formed steps (step_former.h) and their memory (plan_roots.h).
#pragma once

#include "runtime/lower/plan_roots.h"
#include "runtime/lower/step_former.h"

namespace evn {

class PlanSteps {
 public:
  PlanSteps(PlanWork& work, StepFormer& former, PlanRoots& roots)
      : w_(work), former_(former), roots_(roots), draft_(former.draft()) {}

  // Adds the step that the node begins, whose shapes are known, unless its outputs are in place already.
  void add_kernel(std::int32_t index);

 private:
  std::size_t number_of(const Node& node) const { return static_cast<std::size_t>(&node - w_.graph.nodes.data()); }

  // Makes a step whose descs, parts and constants the plan owns out of the draft.
  PlanStep keep_draft();
  // Gives a cascade the layouts and packed copies of its parts.
  void keep_stages(PlanStep* step);

  // Finds the roots of the draft's operands.
  void find_inputs(PlanStep* step);
  std::int32_t paged_root(ValueId v);

  // Finds where the step's outputs go, as far as they are channel views (output_roots_), and sets the pitches of what is some
  // channels of a wider value.
  void set_output_roots(PlanStep* step);

  // The root of output k of a step: an output of the graph, its place in a wider value, an input that it is written over, or a new
  // one.
  std::int32_t output_root(const PlanStep& step, std::size_t k);

  // Adds the step, with the buffers of its inputs, unless there is nothing to write.
  void add_step(PlanStep* step);

  PlanWork& w_;
  StepFormer& former_;
  PlanRoots& roots_;
  const StepDraft& draft_;  // draft of former_

  // Work space of one node.
  std::vector<std::int32_t> input_roots_;
  std::vector<std::int32_t> output_roots_;  // per output: the root that it is written into, or -1
};

}  // namespace evn
