// One run of a session behind all stages: its tensors, its plan, and the execution of the plan's parts.
#include <algorithm>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/guarded.h"
#include "base/heap.h"
#include "runtime/session/session.h"

namespace evn {
namespace {

constexpr int kMostIdle = 64;  // executions of a plan

[[noreturn]] void fail_arena(const Error& e) {
  throw make_error(e.status, "the intermediate values of a run: %s", e.message)
      .with_device(e.device)
      .with_bytes(e.bytes_requested, e.bytes_available);
}

// A run that its caller may leave to the devices, for who waits behind it.
class BoundedRun {
 public:
  BoundedRun(const CompiledGraph& graph, const Cancel& cancel) : graph_(graph), is_bounded_(cancel.exists()) {
    for (Device* d : graph_.devices) {
      if (is_bounded_) d->quarantine().begin_bounded();
    }
  }
  ~BoundedRun() {
    for (Device* d : graph_.devices) {
      if (is_bounded_) d->quarantine().end_bounded();
    }
  }
  BoundedRun(const BoundedRun&) = delete;
  BoundedRun& operator=(const BoundedRun&) = delete;

 private:
  const CompiledGraph& graph_;
  const bool is_bounded_;
};

// A run from its first step on, with all that it works with: what devices need when the run has ended before them. Members that use
// others stand behind them.
struct Flight {
  std::shared_ptr<const CompiledGraph> graph;
  std::shared_ptr<ArenaStore> arenas;
  std::vector<TensorPtr> tensors;
  std::vector<RuntimeValuePtr> runtime_values;
  std::vector<Tensor::Use> uses;
  std::vector<HostSharePtr> shares;
  // The parts of a chain; each uses the memory of those before.
  struct Part {
    PreparedPlanPtr prepared;
    std::unique_ptr<Execution> execution;
  };
  Part first;
  std::vector<Part> others;

  Execution& latest() const { return others.empty() ? *first.execution : *others.back().execution; }
};

class ModelRun {
 public:
  ModelRun(Session& session, RunTensors& tensors) : session_(session), compiled_(session.compiled()), tensors_(tensors) {}

  // `trace`: records the run where the host traces nothing; nullable.
  void run(const StopCondition& stop, std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t number,
           std::shared_ptr<Trace> trace);

 private:
  void settle_devices() const;
  void execute(PreparedPlanPtr first, RunState state);
  // The execution of the first plan, or of a smaller one in its place, which *prepared becomes.
  std::unique_ptr<Execution> take_first(PreparedPlanPtr* prepared);
  std::unique_ptr<Execution> take_execution(PreparedPlan& prepared, const Execution* before);
  std::vector<TensorDesc> run_host_node(const Plan& plan, const Execution& done, const RunState& state);
  void keep_executions(Flight& flight, std::uint64_t number) noexcept;
  [[gnu::cold]] void leave(Flight& flight) noexcept;

  Session& session_;
  const CompiledGraph& compiled_;
  RunTensors& tensors_;
};

// Waits for the work that earlier runs have left to a device, before this run uses it.
void ModelRun::settle_devices() const {
  for (Device* device : compiled_.devices) {
    if (device->is_lost()) {
      throw make_error(EVN_ERROR_DEVICE_LOST, "device %s is lost: %s", device->name().c_str(), device->why_lost())
          .with_device(device->name().c_str());
    }
    device->require_ready(tensors_.cancel);
  }
}

void ModelRun::run(const StopCondition& stop, std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t number,
                   std::shared_ptr<Trace> own_trace) {
  static_cast<StopCondition&>(tensors_.cancel) = stop;
  const HeapReclaim not_here(false);         // a run of a body: there are locks
  const CancelScope scope(tensors_.cancel);  // of what this thread does itself: planning, host operators
  std::optional<RunTrace> trace;
  std::shared_ptr<Trace> to = session_.tracing().to_record(session_.shared_graph());
  if (to == nullptr) to = std::move(own_trace);
  if (to != nullptr) trace.emplace(std::move(to), compiled_);
  if (tensors_.cancel.stop()) tensors_.cancel.fail();
  if (trace && scheduled != nullptr && scheduled->waited_ns() != 0)
    trace->add_span(TraceKind::kQueue, os::now_ns() - scheduled->waited_ns());
  if (compiled_.has_runtime_values) tensors_.runtime_values.resize(compiled_.graph().values.size());
  settle_devices();
  tensors_.take_inputs();
  tensors_.choose_output_slots();
  tensors_.share();
  const std::uint64_t start = trace ? os::now_ns() : 0;
  const PreparedPlanPtr prepared = session_.plans().find(tensors_);
  if (trace) trace->add_span(TraceKind::kPrepare, start);
  RunState state;
  state.stop = stop;
  state.listener = tensors_.listener;
  state.random_seed = random_seed;
  state.number = number;
  state.run = scheduled;
  state.trace = trace ? &*trace : nullptr;
  if (scheduled == nullptr) return execute(prepared, state);
  scheduled->set_alone(prepared->help_worth.begin_alone());
  execute(prepared, state);
  if (const std::uint64_t begin = scheduled->first_help_ns(); begin != 0)
    prepared->help_worth.note(os::now_ns() - begin, scheduled->saved_ns());
}

void ModelRun::execute(PreparedPlanPtr first, RunState state) {
  RunTensors& t = tensors_;
  SmallArray<Buffer> inputs(t.from.size(), session_.spare_blocks());
  SmallArray<Buffer> outputs(t.to.size(), session_.spare_blocks());
  for (std::size_t i = 0; i < t.from.size(); ++i) {
    if (t.from[i] != nullptr) inputs[i] = t.from[i]->buffer();
    if (const HeldValues::Pages pages = t.input_pages(i)) inputs[i] = {pages.table, 0, 0};
  }
  state.inputs = inputs.span();
  state.outputs = outputs.span();
  state.runtime_values = t.runtime_values;
  state.shares = t.shares;
  state.borrows_inputs = t.borrows_inputs;
  SmallArray<std::uint8_t> listened(t.to.size(), session_.spare_blocks());
  state.listened_outputs = listened.span();
  const BoundedRun bounded(compiled_, t.cancel);
  Flight flight;
  flight.first.execution = take_first(&first);
  flight.first.prepared = first;
  const auto run_part = [&](const Plan& plan, Execution& execution) {
    t.check_copies(plan);
    t.take_outputs(plan);
    for (std::size_t j = 0; j < t.to.size(); ++j) {
      const HostShare* const shared = t.to[j] != nullptr && t.to[j]->on_host() ? t.shared_output(j, plan.output_slots[j]) : nullptr;
      outputs[j] = shared != nullptr ? shared->buffer() : t.to[j] != nullptr ? t.to[j]->buffer() : Buffer{};
      listened[j] = t.to[j] != nullptr && t.to[j] == t.outputs[j].tensor && t.to[j]->on_host();
    }
    state.uses_callers = t.uses_callers;
    try {
      execution.run(state);
    } catch (...) {
      if (execution.is_in_flight()) leave(flight);
      throw;
    }
  };
  RunTrace* const trace = state.trace;
  if (trace != nullptr) trace->sample_memory(first->plan.get());
  run_part(*first->plan, *flight.first.execution);
  for (PreparedPlanPtr p = first; p->plan->has_continuation();) {
    const Execution& done = flight.latest();
    std::vector<TensorDesc> made;
    if (p->plan->host_node >= 0) {
      const std::uint64_t begin = trace != nullptr ? os::now_ns() : 0;
      made = run_host_node(*p->plan, done, state);
      if (trace != nullptr) trace->add_host_node(p->plan->host_node, begin);
    }
    const std::uint64_t start = trace != nullptr ? os::now_ns() : 0;
    p = session_.plans().find_next(*p, done, made);
    if (trace != nullptr) trace->add_span(TraceKind::kPrepare, start);
    flight.others.push_back({p, nullptr});
    flight.others.back().execution = take_execution(*p, &done);
    run_part(*p->plan, flight.latest());
  }
  t.own_strings();
  keep_executions(flight, state.number);
}

std::unique_ptr<Execution> ModelRun::take_first(PreparedPlanPtr* prepared) {
  std::unique_ptr<Execution> taken;
  for (bool is_smaller = false;; is_smaller = true) {
    const std::optional<Error> failure = error_of([&] { taken = take_execution(**prepared, nullptr); });
    if (!failure) return taken;
    if (failure->status != EVN_ERROR_OUT_OF_MEMORY) throw *failure;
    PreparedPlanPtr smaller = is_smaller ? nullptr : session_.plans().find_smaller(*(*prepared)->plan);
    if (smaller == nullptr) fail_arena(*failure);
    *prepared = std::move(smaller);
  }
}

// Takes an execution of the plan and an arena for it, once the run has a core, so that no more arenas are in use than runs may
// compute.
std::unique_ptr<Execution> ModelRun::take_execution(PreparedPlan& prepared, const Execution* before) {
  const HeapReclaim allowed(true);  // as the pools may for the arena
  ArenaStore& arenas = *session_.arenas();
  const ArenaNeed need{compiled_.devices, prepared.plan->arena_bytes};
  const bool any = need.total() != 0;
  std::unique_ptr<Execution> execution;
  ArenaPtr arena, replaced;
  {
    const std::lock_guard<std::mutex> lock(arenas.mutex());
    if (prepared.idle != nullptr) {
      execution = std::move(prepared.idle);
      prepared.idle = std::move(execution->next);
      --prepared.idle_count;
    }
    if (any) arena = arenas.take(need, &replaced);
  }
  if (any && arena == nullptr) arena = arenas.make(need, std::move(replaced));
  ArenaLease lease(&arenas, std::move(arena));
  if (execution == nullptr) execution = std::make_unique<Execution>(compiled_, *prepared.plan);
  execution->use_arena(std::move(lease), before);
  return execution;
}

void ModelRun::keep_executions(Flight& flight, std::uint64_t number) noexcept {
  ArenaStore& arenas = *session_.arenas();
  ArenaPtr dropped;
  const auto keep = [&](Flight::Part& part) {
    if (ArenaPtr arena = part.execution->release_arena()) arenas.keep(std::move(arena), number, &dropped);
    PreparedPlan& prepared = *part.prepared;
    if (prepared.idle_count >= kMostIdle) return;
    part.execution->next = std::move(prepared.idle);
    prepared.idle = std::move(part.execution);
    ++prepared.idle_count;
  };
  for (Flight::Part& part : flight.others) part.execution->rest();
  flight.first.execution->rest();
  bool is_offered = false;
  {
    const std::lock_guard<std::mutex> lock(arenas.mutex());
    for (Flight::Part& part : flight.others) keep(part);
    keep(flight.first);
    is_offered = arenas.is_offered();
  }
  if (!is_offered) arenas.offer();
  ArenaStore::free_list(std::move(dropped));
}

// Runs the node that the plan ended with; returns what it made.
std::vector<TensorDesc> ModelRun::run_host_node(const Plan& plan, const Execution& done, const RunState& state) {
  const Node& node = compiled_.graph().nodes[plan.host_node];
  std::vector<RuntimeValuePtr> inputs(node.inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (plan.host_buffers[k] == Plan::kNoBuffer) {
      if (node.inputs[k] != kNoValue) inputs[k] = tensors_.runtime_values[node.inputs[k]];
      continue;
    }
    auto runtime_value = std::make_shared<RuntimeValue>();
    runtime_value->desc = plan.host_inputs[k];
    runtime_value->data = std::shared_ptr<const void>(std::shared_ptr<const void>(), done.address(plan.host_buffers[k]));
    runtime_value->borrowed = true;
    inputs[k] = std::move(runtime_value);
  }
  std::vector<RuntimeValuePtr> outputs(node.outputs.size());
  HostRun services(*session_.runtime(), compiled_.limits(), session_.body(plan.host_node), state.stop, state.random_seed, state.run,
                   state.number);
  std::vector<TensorDesc> made(outputs.size());
  naming_node(node.name, [&] {
    const HeapReclaim allowed(true);
    HostContext context{node, inputs, outputs, services};
    node.op->host(context);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      EVN_CHECK(outputs[k] != nullptr);
      const Value& value = compiled_.graph().values[v];
      made[k] = outputs[k]->desc;
      if (made[k].dtype != value.dtype || made[k].wraps != value.wraps) {
        fail(EVN_ERROR_INVALID_MODEL, "output %zu of %s is of type %s, %s was expected", k, node.op->name,
             made[k].type_string().c_str(), TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
      }
      tensors_.runtime_values[v] = services.keep(outputs[k]);
    }
  });
  return made;
}

// The run has failed, and devices still work for it: they get all that they use. Where there is no memory for that, the run waits.
void ModelRun::leave(Flight& flight) noexcept {
  Execution& latest = flight.latest();
  std::shared_ptr<Flight> held;
  try {
    flight.graph = session_.shared_graph();
    flight.arenas = session_.arenas();
    for (const auto& side : {tensors_.from.span(), tensors_.to.span()})
      flight.tensors.insert(flight.tensors.end(), side.begin(), side.end());
    for (const RunValue& v : tensors_.inputs) flight.tensors.push_back(v.tensor);
    for (const RunValue& v : tensors_.outputs) flight.tensors.push_back(v.tensor);
    flight.runtime_values = tensors_.runtime_values;
    for (const RunValue& v : tensors_.inputs) flight.runtime_values.push_back(v.runtime_value);
    for (const RunShare& s : tensors_.shares) flight.shares.push_back(s.share);
    for (auto* side : {&tensors_.input_uses, &tensors_.output_uses}) {
      for (Tensor::Use& use : side->span()) flight.uses.push_back(std::move(use));
    }
    held = std::make_shared<Flight>(std::move(flight));
  } catch (const std::bad_alloc&) {
    return latest.wait_in_flight();
  }
  latest.hold_in_flight(held);
}

// Devices give back what they keep when no run is under way, where they are told to.
class UnderWay {
 public:
  explicit UnderWay(Runtime& runtime) : runtime_(runtime) { runtime.begin_run(); }
  ~UnderWay() { runtime_.end_run(); }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

 private:
  Runtime& runtime_;
};

}  // namespace

void RunRest::operator()(StagedRun& run) const {
  const std::span<const std::unique_ptr<RunStage>> stages = session_.stages();
  if (next_ == stages.size()) return session_.compute(run);
  stages[next_]->run(session_, run, RunRest(session_, next_ + 1));
}

void Session::run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request) {
  const UnderWay under_way(*runtime());
  StagedRun staged{inputs, outputs, request};
  run(staged);
}

void Session::run(StagedRun& run) { RunRest(*this, 0)(run); }

void Session::compute(StagedRun& run) {
  const RunRequest& request = run.request;
  const std::span<RunValue> outputs = run.outputs;
  StopCondition stop = request.stop;
  if (const Cancel* outer = CancelScope::current()) stop.join(*outer);  // of work of which the run is a part
  stop.join_timeout(request.timeout_ns != 0 ? request.timeout_ns : compiled_->limits().run_time_ns);
  check_counts(graph(), run.inputs.size(), outputs.size());
  RunTensors tensors{*compiled_, run.inputs, outputs, &spare_blocks_, request.allow_copies};
  tensors.held = run.held;
  tensors.skipped = request.skipped;
  tensors.outputs_on_device = request.outputs_on_device;
  tensors.overwrite_inputs = request.overwrite_inputs;
  tensors.listener = request.listener;
  static_cast<StopCondition&>(tensors.cancel) = stop;
  RunGroup* const group = request.is_warm ? nullptr : group_.get();
  ScheduledRun scheduled(runtime()->scheduler(), {request.priority, stop.deadline_ns}, group, tensors.cancel);
  scheduled.enter();
  if (run.note != nullptr) run.note->begin(scheduled);
  ModelRun(*this, tensors).run(stop, request.random_seed, &scheduled, arenas_->begin_run(), run.trace);
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const TensorPtr& given = outputs[j].tensor;
    if (given != nullptr && given != tensors.to[j]) copy_tensor_or_stop(tensors.to[j], given, tensors.cancel);
  }
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j] || is_skipped(tensors.skipped, j) || tensors.output_pages(j)) continue;
    outputs[j].tensor = tensors.to[j];
    if (tensors.to[j] == nullptr) outputs[j].runtime_value = tensors.runtime_values[graph().outputs[j]];
  }
  if (run.note != nullptr) run.note->end(scheduled);
}

std::vector<RuntimeValuePtr> Session::run_values(std::span<const RuntimeValuePtr> inputs, const StopCondition& stop,
                                                 std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t run_number) {
  check_counts(graph(), inputs.size(), graph().outputs.size());
  SmallArray<RunValue> in(inputs.size(), &spare_blocks_);
  SmallArray<RunValue> out(graph().outputs.size(), &spare_blocks_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EVN_CHECK(inputs[i] != nullptr);
    if (inputs[i]->is_tensor()) {
      in[i].tensor = tensor_of(runtime(), inputs[i]);
    } else {
      in[i].runtime_value = inputs[i];
    }
  }
  RunTensors tensors{*compiled_, in.span(), out.span(), &spare_blocks_, false};
  ModelRun(*this, tensors).run(stop, random_seed, scheduled, run_number, nullptr);
  std::vector<RuntimeValuePtr> made(out.size());
  for (std::size_t j = 0; j < made.size(); ++j)
    made[j] = tensors.to[j] != nullptr ? runtime_value_of(tensors.to[j]) : tensors.runtime_values[graph().outputs[j]];
  return made;
}

}  // namespace evn
