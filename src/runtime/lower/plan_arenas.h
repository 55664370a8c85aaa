// The memory of a plan's roots: their places in one arena for each device, and the plan's buffers by these.
#pragma once

#include "runtime/lower/step_former.h"

namespace evn {

class PlanArenas : public StepFormer {
 public:
  using StepFormer::StepFormer;

  // The root of v on a slot; -1: it is not there.
  std::int32_t& root(ValueId v, int slot) { return s_.root_of[static_cast<std::size_t>(v) * roots_of_value() + slot]; }
  std::size_t roots_of_value() const { return c_.devices.size() + 2; }
  std::int32_t& root(ValueId v, int slot, Layout layout) {
    return root(v, layout == Layout::kPlain ? slot : static_cast<int>(c_.devices.size()));
  }

  std::size_t scratch_bytes(int slot, const KernelPlan& p) const;

  // Sets the places of all roots, and the plan's buffers by them.
  void assign_offsets();
  void set_buffers();

  // The plan, with the state of the work for what comes later.
  std::shared_ptr<Plan> finish();
};

}  // namespace evn
