// A session: a compiled model, its plans, and runs of it, with the stages around these.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/spare_blocks.h"
#include "runtime/placement/named_nodes.h"
#include "runtime/session/open_inputs.h"
#include "runtime/session/plan_cache.h"
#include "runtime/session/run_stage.h"
#include "runtime/session/tracing.h"

namespace evn {

class Batcher;
struct SessionIdentity;

struct SessionMemoryStats {
  ArenaStats arenas;
  std::uint64_t plan_count = 0;
  std::uint64_t plan_bytes = 0;
};

// Goes last, also where a session cannot be made: constants that were packed for settings that the runtime does not have, or not
// any more, are not kept for sessions to come. The devices may go with the settings.
class StaleCopies {
 public:
  StaleCopies(ModelPtr model, SettingsPtr settings) : model_(std::move(model)), settings_(std::move(settings)) {}
  StaleCopies(StaleCopies&&) = default;
  ~StaleCopies();

 private:
  ModelPtr model_;  // as its caller has it; null: moved from
  SettingsPtr settings_;
};

// Parts from which a session is put together.
struct SessionParts {
  StaleCopies stale_copies;                            // first, before anything is packed
  std::shared_ptr<const CompiledGraph> compiled = {};  // of the model, or of that with some nodes in parts
  std::vector<std::unique_ptr<Session>> bodies = {};   // per node of the compiled graph; empty where no node has a body
  std::shared_ptr<ArenaStore> arenas = {};             // the bodies' too
  std::shared_ptr<RunGroup> group = {};                // of its runs, and of those with other inputs open
  int concurrency = 0;                                 // runs that compute at a time; 0: as many as there are cores
  std::shared_ptr<Tracing> tracing = std::make_shared<Tracing>();
  std::shared_ptr<SessionIdentity> identity = {};  // null: nobody but who made it runs it
  std::vector<std::unique_ptr<RunStage>> stages = {};
  Batcher* batcher = nullptr;                  // of one of the stages; null: no requests are joined
  std::vector<NodeSelection> selections = {};  // what selects nodes by names, for explain
  MakeOpened make_opened = {};                 // none: no other inputs are opened
};

class Session final : public std::enable_shared_from_this<Session>, public BodyRunner {
 public:
  // Throws EVN_ERROR_FORKED.
  explicit Session(SessionParts parts);
  ~Session();

  const CompiledGraph& compiled() const { return *compiled_; }
  const std::shared_ptr<const CompiledGraph>& shared_graph() const { return compiled_; }
  const Graph& graph() const { return compiled_->graph(); }
  const std::shared_ptr<Runtime>& runtime() const { return compiled_->model->runtime; }

  // Runs once, through all stages. `outputs` has a slot per graph output; empty slots are filled with new values on success only.
  void run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request);
  // Continues a run that has begun in another session, through all stages of this one.
  void run(StagedRun& run);
  // Runs once behind all stages.
  void compute(StagedRun& run);
  // Runs once as a body.
  std::vector<RuntimeValuePtr> run_values(std::span<const RuntimeValuePtr> inputs, const StopCondition& stop,
                                          std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t run_number) override;

  // The requests, statistics and speeds shared by all placements behind one session handle (request/session_identity.h).
  const std::shared_ptr<SessionIdentity>& identity() { return identity_; }
  std::shared_ptr<const SessionIdentity> identity() const { return identity_; }
  int concurrency() const { return concurrency_; }
  std::span<const std::unique_ptr<RunStage>> stages() { return stages_; }
  Batcher* batcher() { return batcher_; }
  const Batcher* batcher() const { return batcher_; }
  OpenInputs& open_inputs() { return open_inputs_; }
  const OpenInputs& open_inputs() const { return open_inputs_; }
  Tracing& tracing() { return *tracing_; }
  const Tracing& tracing() const { return *tracing_; }
  PlanCache& plans() { return plans_; }
  const PlanCache& plans() const { return plans_; }
  const std::shared_ptr<ArenaStore>& arenas() const { return arenas_; }
  // For a node with a body: what runs that; else nullptr.
  Session* body(std::size_t node) { return bodies_.empty() ? nullptr : bodies_[node].get(); }
  const Session* body(std::size_t node) const { return bodies_.empty() ? nullptr : bodies_[node].get(); }
  // Rules and name patterns by which the configuration and the caller select nodes.
  const std::vector<NodeSelection>& selections() const { return selections_; }
  // Where runs have their lists of arguments, where these are many.
  SpareBlocks* spare_blocks() { return &spare_blocks_; }

  // The devices that runs may use.
  std::vector<Device*> devices() const;
  // Memory of the session, of its bodies, of the sessions of its stages and of those that it has opened.
  SessionMemoryStats memory_stats() const;
  // Work that its stages divide among devices.
  DividedWork divided_work() const;

 private:
  void count_plans(SessionMemoryStats* stats) const;

  const StaleCopies stale_copies_;
  const std::shared_ptr<const CompiledGraph> compiled_;  // devices may work with it after the session has gone
  const std::vector<std::unique_ptr<Session>> bodies_;
  const std::shared_ptr<ArenaStore> arenas_;
  const std::shared_ptr<RunGroup> group_;
  const int concurrency_;
  const std::shared_ptr<Tracing> tracing_;
  const std::shared_ptr<SessionIdentity> identity_;
  SpareBlocks spare_blocks_;
  PlanCache plans_;
  const std::vector<std::unique_ptr<RunStage>> stages_;
  Batcher* const batcher_;
  const std::vector<NodeSelection> selections_;
  OpenInputs open_inputs_;
};

// The arenas for a session's intermediate values: its own, or the runtime's.
std::shared_ptr<ArenaStore> make_arenas(Runtime& runtime, const SessionRequest& request);
// Runs that compute at a time; 0: as many as there are cores.
int concurrency_of(const SessionRequest& request);

// Compiles the model of a body. Null: as it is.
using CompileBody = std::function<std::shared_ptr<const CompiledGraph>(const ModelPtr& model, const SessionRequest& request)>;

// Sessions of the bodies of a model's nodes, per node of the graph. `request`: of the session whose bodies they are.
std::vector<std::unique_ptr<Session>> make_bodies(const CompiledGraph& compiled, const SessionRequest& request,
                                                  const std::shared_ptr<ArenaStore>& arenas, const CompileBody& compile_body);

// A session of the model as it is, without stages, that nobody but its maker runs: to measure, or to compute parts of runs. Throws
// what compiling throws.
std::shared_ptr<Session> make_plain_session(const ModelPtr& model, SessionRequest request);

}  // namespace evn
