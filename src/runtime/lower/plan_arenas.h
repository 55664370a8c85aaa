// The memory of a plan's roots: their places in one arena for each device, and the plan's buffers by these.
#pragma once

#include "runtime/lower/step_former.h"

namespace evn {

class PlanArenas : public StepFormer {
 public:
  using StepFormer::StepFormer;

  // The root of v on a slot, in plain order or in a layout; -1: it is not there.
  std::int32_t& root(ValueId v, int slot) { return s_.storage.root(v, Representation::plain(slot)); }
  std::int32_t& root(ValueId v, int slot, Layout layout) { return s_.storage.root(v, Representation::of(layout, slot)); }

  // The root that has the memory of root r: itself, or its parent.
  PlanRoot& owner(std::int32_t r) { return s_.roots[s_.roots[r].view.exists() ? s_.roots[r].view.parent : r]; }

  std::size_t scratch_bytes(int slot, const KernelPlan& p) const;

  // Sets the places of all roots, and the plan's buffers by them.
  void assign_offsets();
  void set_buffers();

  // The plan, with the state of the work for what comes later.
  std::shared_ptr<Plan> finish();
};

}  // namespace evn
