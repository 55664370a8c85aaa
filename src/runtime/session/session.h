// A session: a compiled model, its plans, and runs of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/help_worth.h"
#include "base/mutex.h"
#include "base/spare_blocks.h"
#include "runtime/objects/tensor.h"
#include "runtime/placement/named_nodes.h"
#include "runtime/request/session_identity.h"
#include "runtime/run/execute.h"
#include "runtime/run/host_run.h"
#include "runtime/run/output_listener.h"

namespace evn {

class Batcher;
class JsonWriter;
class RowSplit;
class SplitWatch;
class State;
class StateRun;

struct RunRequest {
  bool allow_copies = false;
  std::uint64_t timeout_ns = 0;  // 0: the configuration's
  std::uint64_t random_seed = 0;
  StopCondition stop = {};  // its deadline, or the timeout where that is earlier
  std::int32_t priority = 0;
  bool outputs_on_device = false;     // outputs that are not given lie where the plan makes them
  bool overwrite_inputs = false;      // outputs may be given tensors that are inputs
  std::shared_ptr<State> state = {};  // nullable
  std::uint64_t submitted_ns = 0;     // of a request; 0: its caller waits for it
  RunTimes* times = nullptr;  // nullable: the run is not counted, and who gave this counts the requests of which it is one run
  std::vector<std::uint8_t> skipped = {};  // per output: 1: not wanted; empty: all are
  OutputListener listener = {};
};
inline bool is_skipped(std::span<const std::uint8_t> skipped, std::size_t output) {
  return !skipped.empty() && skipped[output] != 0;
}

struct SessionMemoryStats {
  ArenaStats arenas;
  std::uint64_t plan_count = 0;
  std::uint64_t plan_bytes = 0;
  std::uint64_t state_bytes = 0;
};

class Session final : public std::enable_shared_from_this<Session>, public BodyRunner {
 public:
  explicit Session(ModelPtr model, SessionRequest request, const CacheConfig& cache = {});
  ~Session();

  const CompiledGraph& compiled() const { return compiled_; }
  const Graph& graph() const { return compiled_.graph(); }
  const std::shared_ptr<Runtime>& runtime() const { return compiled_.model->runtime; }

  // Runs once. `outputs` has a slot per graph output; empty slots are filled with new values on success only. Where a device is
  // lost meanwhile, and the settings have sessions move off those, the session that takes this one's place runs instead.
  void run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request);
  std::vector<RuntimeValuePtr> run_values(std::span<const RuntimeValuePtr> inputs, const StopCondition& stop,
                                          std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t run_number) override;

  // Memory that states of the session hold.
  void add_state_bytes(std::int64_t bytes) { state_bytes_.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed); }

  // Asynchronous runs.
  SessionRequests& requests() { return identity_->requests; }
  RunStatistics& statistics() { return identity_->statistics; }
  // Shared by all placements of what is one session to the host.
  const std::shared_ptr<SessionIdentity>& identity() const { return identity_; }
  // What joins them; nullptr: nothing does.
  Batcher* batcher() const { return batcher_.get(); }

  // The session for runs that give these inputs with a default (a byte per Model::defaults): this one where they are open in it,
  // else one of the same identity and settings in which they are, which this session keeps for runs to come. Throws what loading a
  // model and making a session throw.
  std::shared_ptr<Session> with_inputs(std::span<const std::uint8_t> given);
  std::shared_ptr<Session> with_open_inputs(std::span<const std::string> names);
  // Value of an input with a default that is open here, for a run that does not give it.
  const TensorPtr& default_value(std::size_t number) const { return default_values_[number]; }
  // Sessions that with_inputs has made and that are kept.
  std::vector<std::shared_ptr<Session>> opened() const;

  // Those that runs may use.
  std::vector<Device*> devices() const;

  // What the session holds, bodies included.
  SessionMemoryStats memory_stats() const;
  // For a node with a body: what runs that; else nullptr.
  const Session* body(std::size_t node) const { return bodies_.empty() ? nullptr : bodies_[node].get(); }

  std::string explain(evn_format format) const;
  // What the configuration and the caller select nodes by, for explain. Before anybody else has the session.
  void set_selections(std::vector<NodeSelection> selections) { selections_ = std::move(selections); }

  // A trace that another session records begins here as well, for who is to take its place.
  void trace_like(const Session& other);
  // For requests of its identity that are still to come.
  void set_concurrency() noexcept {
    identity_->requests.set_most_running(concurrency_);
    identity_->requests.set_depth(compiled_.pipeline_depth);
  }
  // Tracing. start and stop throw EVN_ERROR_WRONG_STATE; what was recorded stays until the next start.
  // `serial`: the runs that are traced wait for each step before they begin the next.
  void start_trace(std::uint32_t event_capacity, bool serial = false);
  void stop_trace();
  std::string trace(evn_format format) const;
  // The latest; throws EVN_ERROR_WRONG_STATE.
  std::shared_ptr<const Trace> recorded_trace() const { return latest_trace(); }
  // The plans of the latest run, one after the other; none before the first.
  std::vector<std::shared_ptr<const Plan>> latest_plans() const;
  // Nanoseconds in the steps of each node of graph(), over all runs of the latest trace. Throws EVN_ERROR_WRONG_STATE.
  std::vector<std::uint64_t> node_times() const;
  // Where runs have their lists of arguments, where these are many.
  SpareBlocks* spare_blocks() { return &spare_blocks_; }

 private:
  // A plan, executions of it that are not under way, and the plans that go on from it.
  struct Prepared;
  using PreparedPtr = std::shared_ptr<Prepared>;
  struct Prepared {
    std::shared_ptr<Plan> plan;
    std::unique_ptr<Execution> idle;  // a list, the latest first; guarded by the mutex of arenas_
    int idle_count = 0;
    std::vector<PreparedPtr> next;  // most recently used first
    bool came_back = false;         // asked for again after another plan
    HelpWorth help_worth;

    ~Prepared();
  };
  struct Call;

  // Recording of runs, of the session and of those that it has opened.
  struct Tracing {
    Mutex mutex;  // guards latest
    std::shared_ptr<Trace> latest;
    std::atomic<bool> is_on{false};  // runs that begin now record into `latest`
  };

  // `arenas`: of the session in which it is a body, or of which it is another graph; or null. `group`: of the latter.
  Session(ModelPtr model, const SessionRequest& request, const CacheConfig& cache, std::shared_ptr<ArenaStore> arenas,
          std::shared_ptr<RunGroup> group, std::uint64_t begin_ns);
  void set_default_values(const SessionRequest& request);
  std::shared_ptr<Session> find_opened(std::span<const std::string> names);
  void make_bodies(const SessionRequest& request);
  struct Latest;
  Latest latest() const;
  std::shared_ptr<Plan> plan_for_assumed_inputs() const;
  void write_nodes(JsonWriter& json, std::string& text, std::int64_t level) const;
  void write_split(JsonWriter& json, std::string& text) const;
  void log_plan(const Plan& plan, std::uint64_t duration_ns, bool made_over) const;
  void check_counts(std::size_t inputs, std::size_t outputs) const;
  // Whether the input is a tensor of the dtype and within the shape that the model declares. Others may still be right
  // (check_input).
  bool fits_declared_shape(std::size_t index, const RunValue& value) const;
  void check_input(std::size_t index, const RunValue& value) const;
  [[noreturn]] void refuse_output(std::size_t index, const TensorDesc& want, const Tensor& have) const;
  // The message is about the device where the tensor lies, and ends with `why` and `what`.
  [[noreturn]] void refuse_copy(bool output, std::size_t index, const Device& given, const char* why, const char* what) const;
  [[noreturn]] void refuse_foreign(bool output, std::size_t index, const Device& given) const;
  std::uint8_t slot_for(const Tensor& tensor, bool output, std::size_t index, bool allow_copies) const;
  void check_copies(const Plan& plan, bool allow_copies) const;
  TensorPtr stage(const TensorDesc& desc, std::uint8_t slot) const;
  bool may_leave(const Call& call) const;
  void settle_devices(const Call& call) const;
  [[noreturn]] static void refuse_lost(const Device& device);
  struct Flight;
  [[gnu::cold]] void leave(Call& call, Flight& flight) const noexcept;
  void take_inputs(Call& call) const;
  void choose_output_slots(Call& call) const;
  void share_inputs(Call& call) const;
  void share_outputs(Call& call) const;
  void take_outputs(Call& call, const Plan& plan) const;
  void run_noted(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request, RunNote& note,
                 StateRun* state);
  [[gnu::cold]] void note_parts(const Trace& trace) const noexcept;
  void note_duration(std::uint64_t duration_ns) noexcept;  // of a run, for the batches to come
  void run_here(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request, RunNote& note);
  std::shared_ptr<Session> after_loss(const Error& failure, const RunRequest& request) const;
  void run_with_state(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request, RunNote& note);
  void run_call(Call& call, const StopCondition& stop, std::uint64_t random_seed, ScheduledRun* scheduled,
                std::uint64_t run_number);
  void execute(Call& call, PreparedPtr first, RunState state);
  std::vector<TensorDesc> run_host_node(Call& call, const Plan& plan, const Execution& done, const RunState& state);
  void own_strings(Call& call) const;
  std::shared_ptr<Trace> trace_to_record() const;
  std::shared_ptr<Trace> latest_trace() const;
  bool matches(const Plan& plan, const Call& call) const;
  Signature signature_of(const Call& call) const;
  PreparedPtr find_plan(const Call& call);
  PreparedPtr prepare(const Call& call);
  bool fits_beside(const Plan& plan) const;
  std::shared_ptr<Plan> smaller_plan(const Plan& plan) const;
  PreparedPtr prepare_smaller(const Plan& refused);
  // The execution of the first plan of a run, or of a smaller one in its place, which *prepared becomes.
  std::unique_ptr<Execution> take_first(PreparedPtr* prepared);
  std::shared_ptr<Plan> take_stale_plan(const Signature& signature);
  PreparedPtr remember(std::shared_ptr<Plan> plan);
  PreparedPtr find_next(Prepared& prepared, const Execution& done, std::span<const TensorDesc> made);
  // Takes an execution of the plan and an arena for it.
  std::unique_ptr<Execution> take_execution(Prepared& prepared, const Execution* before);
  void keep_executions(Flight& flight, std::uint64_t run_number) noexcept;
  void add_plans(const std::vector<PreparedPtr>& plans, SessionMemoryStats* stats) const;

  // Goes last: constants that were packed for settings that the runtime does not have, or not any more, are not kept for sessions
  // to come. The devices may go with the settings.
  struct StaleCopies {
    ModelPtr model;
    SettingsPtr settings;
    ~StaleCopies();
  };

  const StaleCopies stale_copies_;
  const std::shared_ptr<const CompiledGraph> owned_;  // shared; devices may work with it after the session has gone
  const CompiledGraph& compiled_ = *owned_;
  std::vector<NodeSelection> selections_;
  std::vector<std::unique_ptr<Session>> bodies_;  // per node; empty where no node has a body
  const std::shared_ptr<ArenaStore> arenas_;      // the bodies' too
  SpareBlocks spare_blocks_;
  std::shared_ptr<Tracing> tracing_ = std::make_shared<Tracing>();
  mutable Mutex mutex_;                        // guards plans_
  std::vector<PreparedPtr> plans_;             // most recently used first
  std::atomic<std::uint64_t> state_bytes_{0};  // of states
  const int concurrency_;                      // 0: as many runs at a time as there are cores
  const std::shared_ptr<RunGroup> group_;      // of its runs, and of those with other inputs open
  const std::shared_ptr<SessionIdentity> identity_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<RowSplit> split_;    // null: runs are not split
  std::unique_ptr<SplitWatch> watch_;  // null: no node is split, or nobody would take other shares

  // Of a model that has inputs with a default.
  std::unique_ptr<const SessionRequest> request_;  // by which sessions with other inputs open are made
  std::vector<TensorPtr> default_values_;          // per Model::defaults; null: it is a constant
  mutable Mutex opened_mutex_;                     // guards opened_; held for moments
  std::vector<std::shared_ptr<Session>> opened_;   // most recently used first
};

}  // namespace evn
