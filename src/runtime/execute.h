// Runs a plan: the memory of one run, and the loop over its steps.
#pragma once

#include <vector>

#include "ops/host.h"
#include "runtime/plan.h"
#include "runtime/trace.h"

namespace evn {

// What all parts of one run share.
struct RunState {
  std::span<const Buffer> inputs;      // where the signature says
  std::span<const Buffer> outputs;
  std::span<const BoxPtr> boxes;       // per value; empty where the graph has none
  std::uint64_t deadline_ns = 0;       // os::now_ns(); 0: none
  std::uint64_t random_seed = 0;
  RunTrace* trace = nullptr;           // records the steps; nullptr: nothing does
};

// What one run at a time needs: arenas, and the plan's buffers with their addresses filled in. Kept by the session between runs.
class Execution {
 public:
  // Allocates the arenas. `before`: of the plan that this one goes on from; must outlive this one.
  Execution(const CompiledGraph& graph, const Plan& plan, const Execution* before = nullptr);

  // Runs all steps and waits for all devices. Allocates nothing, but for strings that are made. Throws EVN_ERROR_TIMEOUT after the
  // deadline, and what kernels and devices throw, with node and device; all work has ended then too.
  void run(const RunState& state);

  // Where a buffer of the plan, which lies on the host, is.
  const void* address(std::uint32_t buffer) const { return buffers_[buffer].address(); }

 private:
  void bind(const RunState& state);
  void run_steps();
  void run_kernel(const PlanStep& step, StepTrace* trace);
  void run_copy(const PlanStep& step, StepTrace* trace);
  void wait_for(std::uint32_t slots);
  void drain() noexcept;

  struct Patch {
    std::uint32_t buffer;
    Source source;
    std::int32_t index;
  };

  const CompiledGraph& graph_;
  const Plan& plan_;
  const Execution* before_;
  std::vector<PooledMemory> arenas_;   // per device slot
  std::vector<Buffer> buffers_;
  std::vector<Patch> patches_;         // buffers that are inputs, outputs or boxes
  TextPool texts_;                     // of strings that this run's steps made
  RunServices services_;
  std::vector<Event> last_;            // per device slot: its latest work of this run
  Cancel cancel_;
  RunTrace* trace_ = nullptr;          // of the run under way
};

}  // namespace evn
