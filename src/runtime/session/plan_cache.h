// The plans of a session: found by what a run brings, made where none fits, and made over where shapes never come again.
#pragma once

#include <memory>
#include <vector>

#include "base/help_worth.h"
#include "base/mutex.h"
#include "runtime/run/execute.h"
#include "runtime/session/run_tensors.h"

namespace evn {

// A plan, executions of it that are not under way, and the plans that go on from it.
struct PreparedPlan {
  ~PreparedPlan();

  std::shared_ptr<Plan> plan;
  std::unique_ptr<Execution> idle;  // a list, the latest first; guarded by the mutex of the session's arenas
  int idle_count = 0;
  std::vector<std::shared_ptr<PreparedPlan>> next;  // most recently used first
  bool came_back = false;                           // asked for again after another plan
  HelpWorth help_worth;
};
using PreparedPlanPtr = std::shared_ptr<PreparedPlan>;

class PlanCache {
 public:
  // Both outlive it.
  PlanCache(const CompiledGraph& compiled, ArenaStore& arenas) : compiled_(compiled), arenas_(arenas) {}

  // The plan for a run with these tensors. Throws what planning throws.
  PreparedPlanPtr find(const RunTensors& run);
  // The plan that goes on where `prepared` ended, for the values that its run came to, or for what its host node made.
  PreparedPlanPtr find_next(PreparedPlan& prepared, const Execution& done, std::span<const TensorDesc> made);
  // The plan with another order of its steps, in the place of one for which a device has refused memory; null: none takes less.
  PreparedPlanPtr find_smaller(const Plan& refused);

  // The plans of the latest run, one after the other; none before the first.
  std::vector<std::shared_ptr<const Plan>> latest() const;
  // Adds their number, and the bytes of their bookkeeping.
  void count(std::uint64_t* plans, std::uint64_t* bytes) const;

 private:
  bool matches(const Plan& plan, const RunTensors& run) const;
  Signature signature_of(const RunTensors& run) const;
  PreparedPlanPtr prepare(const RunTensors& run);
  bool fits_beside(const Plan& plan) const;
  std::shared_ptr<Plan> make_smaller(const Plan& plan) const;
  std::shared_ptr<Plan> take_stale(const Signature& signature);
  PreparedPlanPtr remember(std::shared_ptr<Plan> plan);
  void log(const Plan& plan, std::uint64_t duration_ns, bool made_over) const;

  const CompiledGraph& compiled_;
  ArenaStore& arenas_;
  mutable Mutex mutex_;                 // guards plans_ and what follows each
  std::vector<PreparedPlanPtr> plans_;  // most recently used first
};

}  // namespace evn
