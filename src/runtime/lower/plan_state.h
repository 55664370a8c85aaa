// The state of making a plan. Shapes (shape_walk.h), steps (step_former.h) and their memory (plan_roots.h, plan_steps.h) are
// decided one after the other; plan.cc puts them together for a new signature, replan.cc for one whose dims differ.
#pragma once

#include "runtime/lower/plan.h"
#include "runtime/lower/shared_vector.h"
#include "runtime/lower/value_storage.h"

namespace evn {

// A piece of memory that one or several values share.
struct PlanRoot {
  Source source = Source::kNone;
  std::uint8_t slot = 0;
  std::uint16_t subplan = 0;
  std::int32_t index = -1;
  Buffer fixed;
  std::size_t bytes = 0;
  std::size_t room = 0;    // of an arena: bytes at its place
  std::size_t slack = 0;   // of these, to grow into
  std::int32_t first = 0;  // steps
  std::int32_t last = 0;
  std::int32_t last_user = -1;  // last node that reads any of its values
  RootView view;                // its place and life are the parent's
  bool is_16bit = false;        // stored as bfloat16 or float16, in half of the bytes
  bool is_viewed = false;       // is part of another one, or the other way round
  bool written_over = false;    // some of its channels are those of a later value
  std::int8_t paged_axis = -1;  // of an input in pages: the axis of their rows
};

// What is known of the values between two nodes; and, behind the last one, how the plan was made.
struct PlanState {
  std::size_t first_node = 0;  // at which this plan begins
  std::size_t next_node = 0;
  SharedVector<TensorDesc> descs;    // per value
  SharedVector<const void*> values;  // per value: known bytes, or null
  ValueStorage storage;
  SharedVector<std::int32_t> parent_of;  // per value: the root that others' channels are written into before it is made, or -1
  SharedVector<std::int32_t> output_of;  // per value: first output position that it is, or -1
  SharedVector<PlanRoot> roots;
  std::size_t first_root = 0;                     // of the roots that this plan has added
  SharedVector<std::uint8_t> without_step;        // per node: computed with one before it, in a branch that is not taken, or dead
  std::shared_ptr<const std::vector<bool>> dead;  // per node: no output that is wanted depends on it; null: none is
  std::vector<std::int32_t> buffer_roots;         // per plan buffer: its root, or -1
  SharedVector<std::int32_t> step_of;             // per node: the step that computes it, or -1
  std::vector<std::int32_t> other_steps;          // copies and re-layouts

  // For plans that others go on from: from now on all is shared.
  void freeze() const {
    descs.freeze();
    values.freeze();
    storage.freeze();
    parent_of.freeze();
    output_of.freeze();
    roots.freeze();
    without_step.freeze();
    step_of.freeze();
  }
};

// What all that make a plan work on.
class PlanWork {
 public:
  PlanWork(const CompiledGraph& compiled, std::shared_ptr<Plan> plan)
      : c_(compiled), graph_(compiled.graph()), limits_(compiled.limits()), plan_(std::move(plan)) {}

  bool host(int slot) const { return c_.devices[slot]->traits().host_addressable; }

  // Threads of the device; 0 where it is not the host's.
  std::uint32_t threads_of(int slot) const { return host(slot) ? c_.devices[slot]->traits().compute_units : 0; }

  bool is_dead(std::size_t node) const { return s_.dead != nullptr && (*s_.dead)[node]; }
  bool is_skipped(std::size_t output) const { return !plan_->signature->skipped.empty() && plan_->signature->skipped[output] != 0; }

  // Whether the bytes of a value are the same in every layout.
  static bool same_in_all_layouts(const Shape& shape) {
    return shape.rank() < 3 || shape[1] == 1 || shape.elements(2, shape.rank()) == 1;
  }

  const CompiledGraph& c_;
  const Graph& graph_;
  const Limits& limits_;
  std::shared_ptr<Plan> plan_;
  PlanState s_;
};

}  // namespace evn
