// Runs a plan: the memory of one run, and the loop over its steps.
#pragma once

#include <vector>

#include "runtime/plan.h"
#include "runtime/trace.h"

namespace evn {

// What one run at a time needs: arenas, and the plan's buffers with their addresses filled in. Kept by the session between runs.
class Execution {
 public:
  // Allocates the arenas. `before`: of the plan that this one goes on from; must outlive this one.
  Execution(const CompiledGraph& graph, const Plan& plan, const Execution* before = nullptr);

  // Runs all steps and waits for all devices. `inputs` and `outputs` are where the signature says. Allocates nothing. Throws
  // EVN_ERROR_TIMEOUT after `deadline_ns` (os::now_ns(); 0: none), and what kernels and devices throw, with node and device; all
  // work has ended then too. `trace`: records the steps; nullptr: nothing does.
  void run(std::span<const Buffer> inputs, std::span<const Buffer> outputs, std::uint64_t deadline_ns, RunTrace* trace);

  // Where a buffer of the plan, which lies on the host, is.
  const void* address(std::uint32_t buffer) const { return buffers_[buffer].address(); }

 private:
  void bind(std::span<const Buffer> inputs, std::span<const Buffer> outputs);
  void run_steps();
  void run_kernel(const PlanStep& step, StepTrace* trace);
  void run_copy(const PlanStep& step, StepTrace* trace);
  void wait_for(std::uint32_t slots);
  void drain() noexcept;

  struct Patch {
    std::uint32_t buffer;
    bool output;
    std::int32_t index;
  };

  const CompiledGraph& graph_;
  const Plan& plan_;
  const Execution* before_;
  std::vector<PooledMemory> arenas_;   // per device slot
  std::vector<Buffer> buffers_;
  std::vector<Patch> patches_;         // buffers that are inputs or outputs
  std::vector<Event> last_;            // per device slot: its latest work of this run
  Cancel cancel_;
  RunTrace* trace_ = nullptr;          // of the run under way
};

}  // namespace evn
