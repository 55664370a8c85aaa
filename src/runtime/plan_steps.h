// The steps of a plan that run kernels: one node with the sums that follow it, or several nodes in bands.
#pragma once

#include "runtime/plan_roots.h"

namespace evn {

class PlanSteps : protected PlanRoots {
 protected:
  using PlanRoots::PlanRoots;

  // Adds the step of a node whose descs begin at `first_desc`, `inputs` of them for inputs, unless its outputs are in place already.
  void add_kernel(std::int32_t index, std::size_t first_desc, std::size_t inputs);

  // Runs the node, whose descs begin at `first`, and some that follow it, in bands. False: it should run alone.
  bool add_bands(std::int32_t index, std::size_t first);

 private:
  // Takes into the step the sums that follow the node, as far as the shapes allow it. Their inputs stand behind the node's own.
  void take_sums(const CompiledNode& n, PlanStep* step);

  // Notes that the step computes the node too.
  void absorb(std::int32_t node, PlanStep* step);

  // A part of a step in bands: its inputs begin at `first` of the plan's descs, and its output stands behind them.
  OpDesc part_desc(std::int32_t index, std::size_t first) const;

  // The sum that follows the last part, if what is added is there when the first one runs.
  void take_residual(std::int32_t first, std::int32_t last, OpDesc* part, PlanStep* step);

  // Adds the step that runs the parts in bands.
  void add_band_step(PlanStep* step, std::span<OpDesc> parts);

  // Adds a step of a kernel, with the roots of its inputs, unless there is nothing to write.
  void add_step(PlanStep* step, const std::vector<std::int32_t>& in);

  // A kernel for a node whose ranks were not known when the session was made: of its device, or where a rule only prefers that, of
  // the CPU.
  void choose_late(PlanStep* step);

  // Kernels need not cope with inputs that have no elements; the reference does. Inputs that are read by value are lists, which
  // may be empty. False: there is nothing to compute.
  bool choose_for_empty(PlanStep* step);

  std::vector<std::int32_t> input_roots_;  // work space of one node
};

}  // namespace evn
