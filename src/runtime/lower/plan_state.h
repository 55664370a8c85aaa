// The state of making a plan. The stages share it: shapes (shape_walk.h), steps (step_former.h) and their memory (plan_roots.h,
// plan_steps.h, plan_arenas.h). plan.cc puts the stages together for a new signature, replan.cc for one whose dims differ.
#pragma once

#include <cstring>

#include "base/checked.h"
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

// The plan that is being made, and its state. Each stage refers to one object of its planner.
struct PlanWork {
  PlanWork(const CompiledGraph& compiled, std::shared_ptr<Plan> made)
      : c(compiled), graph(compiled.graph()), limits(compiled.limits()), plan(std::move(made)) {}
  PlanWork(const PlanWork&) = delete;

  bool host(int slot) const { return c.devices[slot]->traits().host_addressable; }

  // Threads of the device; 0 where it is not the host's.
  std::uint32_t threads_of(int slot) const { return host(slot) ? c.devices[slot]->traits().compute_units : 0; }
  std::size_t scratch_bytes(int slot, const KernelPlan& p) const {
    return checked_add(align_up(p.scratch_bytes, 64),
                       checked_mul<std::size_t>(threads_of(slot), align_up(p.thread_scratch_bytes, 64)));
  }

  bool is_dead(std::size_t node) const { return state.dead != nullptr && (*state.dead)[node]; }
  bool is_skipped(std::size_t output) const { return !plan->signature->skipped.empty() && plan->signature->skipped[output] != 0; }

  // The number of the next step.
  std::int32_t now() const { return static_cast<std::int32_t>(plan->steps.size()); }

  // The root of v on a slot, in plain order or in a layout; -1: it is not there.
  std::int32_t& root(ValueId v, int slot) { return state.storage.root(v, Representation::plain(slot)); }
  std::int32_t& root(ValueId v, int slot, Layout layout) { return state.storage.root(v, Representation::of(layout, slot)); }

  // The root that has the memory of root r: itself, or its parent.
  PlanRoot& owner(std::int32_t r) { return state.roots[state.roots[r].view.exists() ? state.roots[r].view.parent : r]; }

  // Keeps bytes of v, or room for them (`size` is 0), with the plan.
  void set_known(ValueId v, const void* bytes, std::size_t size) {
    void* to = nullptr;
    plan->known[v] = make_weight(state.descs[v], nullptr, &to);
    if (size > 0) std::memcpy(to, bytes, size);
    state.values[v] = to;
  }

  // Returns true if the bytes of a value are the same in every layout.
  static bool same_in_all_layouts(const Shape& shape) {
    return shape.rank() < 3 || shape[1] == 1 || shape.elements(2, shape.rank()) == 1;
  }

  const CompiledGraph& c;
  const Graph& graph;
  const Limits& limits;
  std::shared_ptr<Plan> plan;
  PlanState state;
};

}  // namespace evn
