// The memory of a plan's roots: their places in one arena for each device, and the plan's buffers by these.
#pragma once

#include "runtime/lower/plan_state.h"

namespace evn {

class PlanArenas {
 public:
  explicit PlanArenas(PlanWork& work) : w_(work) {}

  // Sets the places of all roots, and the plan's buffers by them.
  void assign_offsets();
  void set_buffers();

  // The plan, with the state of the work for what comes later.
  std::shared_ptr<Plan> finish();

 private:
  PlanWork& w_;
};

}  // namespace evn
