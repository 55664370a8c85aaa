// Runs a plan: the memory of one run, and the loop over its steps.
#pragma once

#include <array>
#include <vector>

#include "ops/host.h"
#include "runtime/lower/plan.h"
#include "runtime/run/arena_store.h"
#include "runtime/run/host_copies.h"
#include "runtime/run/output_listener.h"
#include "runtime/run/trace.h"

namespace evn {

// An input or output of the run that lies on the host, and that the device of a slot uses there.
struct RunShare {
  HostSharePtr share;
  std::int32_t index = -1;
  std::uint8_t slot = 0;
  bool is_output = false;
};

// What all parts of one run share.
struct RunState {
  std::span<const Buffer> inputs;  // where the signature says
  std::span<const Buffer> outputs;
  std::span<const RuntimeValuePtr> runtime_values;  // per value; empty where the graph has none
  std::span<const RunShare> shares;
  // Memory of the host that its owner may take back or write to when the run has ended: whether it is copied to devices, and
  // whether devices write it, or work in it.
  bool borrows_inputs = false, uses_callers = false;
  StopCondition stop;
  OutputListener listener = {};
  std::span<const std::uint8_t> listened_outputs = {};  // 1: those that are written where the caller wants them
  std::uint64_t random_seed = 0;
  std::uint64_t number = 0;  // ArenaStore::begin_run
  ScheduledRun* run = nullptr;
  RunTrace* trace = nullptr;  // records the steps; nullptr: nothing does
};

// What one run at a time needs: the plan's buffers with their addresses filled in, and the arena in which they lie. Kept by the
// session between runs, without the arena.
class Execution {
 public:
  Execution(const CompiledGraph& graph, const Plan& plan);

  // Says where intermediate values lie, until release_arena. `before`: of the plan that this one goes on from (nullptr: it is the
  // first of its chain), which has its arena as long.
  void use_arena(ArenaLease arena, const Execution* before) noexcept;
  ArenaPtr release_arena() noexcept { return arena_.release(); }
  // Lets go of what only the run that has ended needed.
  void rest() noexcept {
    texts_.clear();
    staged_.clear();
  }

  // Runs all steps and waits for all devices. Allocates nothing, but for strings that are made. Throws EVN_ERROR_TIMEOUT after the
  // deadline, and what kernels and devices throw, with node and device. All work has ended then too, unless is_in_flight(): then
  // devices still work with all that the run was given.
  void run(const RunState& state);
  bool is_in_flight() const { return in_flight_ != 0; }
  // Has these devices let go of `held`, which keeps this object and all that the run was given, when they have done their work.
  void hold_in_flight(const std::shared_ptr<const void>& held) noexcept;
  // Waits for them instead.
  void wait_in_flight() noexcept;

  // Where a buffer of the plan, which lies on the host, is.
  const void* address(std::uint32_t buffer) const { return buffers_[buffer].address(); }

  std::unique_ptr<Execution> next;  // while it is idle: another one of the plan

 private:
  void bind(const RunState& state);
  void run_steps(const RunState& state);
  void find_last_uses();
  void tell(const RunState& state, std::size_t step, std::size_t* told);
  void tell_copied(const RunState& state);
  void run_kernel(const PlanStep& step, StepTrace* trace);
  void run_copy(const PlanStep& step, StepTrace* trace);
  void run_paged(const PlanStep& step);
  void wait_for_copies(const PlanStep& step);
  void wait_for(const Event& event);
  void wait_for_all();
  template <typename F>
  void wait(F&& each);
  void submit_all();
  Event& latest_copy(const PlanStep& step);
  void end_early() noexcept;
  Buffer staged(std::uint32_t buffer);

  void end_shares();
  bool can_leave();

  struct Patch {
    std::uint32_t buffer;
    Source source;
    std::uint8_t slot;
    std::int32_t index;
  };

  const CompiledGraph& graph_;
  const Plan& plan_;
  const Execution* before_ = nullptr;
  ArenaLease arena_;
  std::vector<void*> bound_;  // per device slot: the arena's memory, by which buffers_ have their addresses
  std::vector<Buffer> buffers_;
  std::vector<Buffer> packed_;  // work space of one step
  std::vector<Patch> patches_;  // buffers that are inputs, outputs or runtime values
  struct LastUse {
    std::size_t step = 0;
    std::uint32_t output = 0;
    bool is_copy = false;
  };
  std::vector<LastUse> last_uses_;  // by step, of outputs that the host uses; filled by the first run that has a listener
  struct Copied {
    Event ended;
    std::uint32_t output = 0;
  };
  std::vector<Copied> copied_;  // outputs of this run that the listener is told of when their copies have ended
  TextPool texts_;              // of strings that this run's steps made
  RunServices services_;
  // Kinds of work, in the order in which they are waited for: what ends last comes first. A device does the work of one kind in
  // order.
  enum Work : std::uint8_t { kDownload, kKernel, kShare, kInnerCopy, kUpload, kWorkCount };
  struct Latest {
    Event begin;                         // what the device had been given before this run
    std::array<Event, kWorkCount> work;  // the latest work of this run, by kind
  };
  std::vector<Latest> latest_;                          // per device slot
  HostCopies host_copies_;                              // that nobody has waited for
  std::uint32_t used_ = 0;                              // device slots on which this run has put work, or tried to
  std::uint32_t unsubmitted_ = 0;                       // of these, those with work that the driver may keep back
  std::uint32_t in_flight_ = 0;                         // of these, those that had not done it when the run ended
  std::vector<std::shared_ptr<void>> staged_;           // host memory that outlives the run where runtime values do not
  std::span<const RunShare> shares_;                    // those of this run whose use has not ended
  bool borrows_inputs_ = false, uses_callers_ = false;  // RunState's
  Cancel cancel_;
  ScheduledRun* run_ = nullptr;  // the run under way
  RunTrace* trace_ = nullptr;    // of it
};

}  // namespace evn
