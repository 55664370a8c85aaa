// One run of a session: checks, staging, the plan, its execution. Compiled for speed; rare paths are in session.cc.
#include "runtime/session/session_call.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/guarded.h"
#include "base/heap.h"
#include "kept_features.h"
#include "runtime/run/overlap.h"
#include "runtime/split/row_split.h"
#include "runtime/split/split_watch.h"

namespace evn {
namespace {

constexpr int kMostIdle = 64;  // executions of a plan

}  // namespace

bool Session::fits_declared_shape(std::size_t index, const RunValue& given) const {
  const Value& want = graph().values[graph().inputs[index]];
  const TensorDesc& have = given.tensor != nullptr ? given.tensor->desc() : given.runtime_value->desc;
  if (want.wraps || have.wraps || have.dtype != want.dtype || !want.has_shape) return false;
  bool fits = have.shape.rank() == want.shape.rank();
  for (int i = 0; fits && i < want.shape.rank(); ++i) fits = want.shape[i] < 0 || want.shape[i] == have.shape[i];
  return fits;
}

// The device slot of a tensor, or UINT8_MAX when it lies outside the session's devices.
std::uint8_t Session::slot_for(const Tensor& tensor, bool output, std::size_t index, bool allow_copies) const {
  for (std::size_t s = 0; s < compiled_.devices.size(); ++s) {
    if (compiled_.devices[s] == tensor.device()) return static_cast<std::uint8_t>(s);
  }
  if (!allow_copies) refuse_foreign(output, index, *tensor.device());
  return UINT8_MAX;
}

// Throws where the plan copies what the caller said may not be copied.
void Session::check_copies(const Plan& plan, bool allow_copies) const {
  if (allow_copies || plan.given_copies.empty()) return;
  const GivenCopy& c = plan.given_copies.front();
  refuse_copy(c.is_output, static_cast<std::size_t>(c.index), *compiled_.devices[c.given_slot],
              c.is_output ? "the plan makes it on " : "the plan reads it on ", compiled_.devices[c.plan_slot]->name().c_str());
}

bool Session::matches(const Plan& plan, const Call& call) const {
  const Signature& s = *plan.signature;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (s.input_slots[i] != call.input_slots[i] || !(s.inputs[i] == call.input_desc(i))) return false;
    if (!is_key(compiled_, i, s.inputs[i])) continue;
    const Tensor& t = *call.from[i];
    if (s.values[i].size() != t.size_bytes()) return false;
    if (t.size_bytes() > 0 && std::memcmp(s.values[i].data(), t.buffer().address(), t.size_bytes()) != 0) return false;
  }
  return std::equal(s.output_slots.begin(), s.output_slots.end(), call.output_slots.span().begin()) &&
         std::equal(s.skipped.begin(), s.skipped.end(), call.skipped.begin(), call.skipped.end()) &&
         s.shares_inputs == call.shares_inputs && s.shares_outputs == call.shares_outputs;
}

Session::PreparedPtr Session::find_plan(const Call& call) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (!matches(*plans_[i]->plan, call)) continue;
      if (i > 0) {
        plans_[i]->came_back = true;
        std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(i),
                    plans_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
      return plans_[0];
    }
  }
  return prepare(call);
}

// Called once the run has a core, so that no more arenas are in use than runs may compute.
std::unique_ptr<Execution> Session::take_execution(Prepared& prepared, const Execution* before) {
  const HeapReclaim allowed(true);  // as the pools may for the arena
  const ArenaNeed need{compiled_.devices, prepared.plan->arena_bytes};
  const bool any = need.total() != 0;
  std::unique_ptr<Execution> execution;
  ArenaPtr arena, replaced;
  {
    const std::lock_guard<std::mutex> lock(arenas_->mutex());
    if (prepared.idle != nullptr) {
      execution = std::move(prepared.idle);
      prepared.idle = std::move(execution->next);
      --prepared.idle_count;
    }
    if (any) arena = arenas_->take(need, &replaced);
  }
  if (any && arena == nullptr) arena = arenas_->make(need, std::move(replaced));
  ArenaLease lease(arenas_.get(), std::move(arena));
  if (execution == nullptr) execution = std::make_unique<Execution>(compiled_, *prepared.plan);
  execution->use_arena(std::move(lease), before);
  return execution;
}

void Session::keep_executions(Flight& flight, std::uint64_t run_number) noexcept {
  ArenaPtr dropped;
  const auto keep = [&](Flight::Part& part) {
    if (ArenaPtr arena = part.execution->release_arena()) arenas_->keep(std::move(arena), run_number, &dropped);
    Prepared& prepared = *part.prepared;
    if (prepared.idle_count >= kMostIdle) return;
    part.execution->next = std::move(prepared.idle);
    prepared.idle = std::move(part.execution);
    ++prepared.idle_count;
  };
  for (Flight::Part& part : flight.others) part.execution->rest();
  flight.first.execution->rest();
  bool is_offered = false;
  {
    const std::lock_guard<std::mutex> lock(arenas_->mutex());
    for (Flight::Part& part : flight.others) keep(part);
    keep(flight.first);
    is_offered = arenas_->is_offered();
  }
  if (!is_offered) arenas_->offer();
  ArenaStore::free_list(std::move(dropped));
}

namespace {

// True when the bytes are not aligned for the kernels, which want the natural alignment of the dtype.
bool misaligned(const Tensor& t) {
  return t.on_host() && reinterpret_cast<std::uintptr_t>(t.buffer().memory) % dtype_alignment(t.desc().dtype) != 0;
}

}  // namespace

void Session::check_counts(std::size_t inputs, std::size_t outputs) const {
  const std::size_t in = graph().inputs.size();
  const std::size_t out = graph().outputs.size();
  if (inputs == in && outputs == out) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "the model has %zu inputs and %zu outputs, %zu and %zu are given", in, out, inputs, outputs);
}

TensorPtr Session::stage(const TensorDesc& desc, std::uint8_t slot) const {
  return std::make_shared<Tensor>(runtime(), compiled_.devices[slot], desc, false, Tensor::Fill::kNone);
}

// Whether the run may end while devices still work for it: then they touch no host memory that is not the library's to keep, and
// none that is given for outputs, which others could read and write at once.
bool Session::may_leave(const Call& call) const {
  return call.cancel.exists() && std::any_of(compiled_.devices.begin(), compiled_.devices.end(),
                                             [](const Device* d) { return !d->traits().host_addressable; });
}

// What earlier runs have left to a device stands before all that this one would do there.
void Session::settle_devices(const Call& call) const {
  for (Device* device : compiled_.devices) {
    if (device->is_lost()) refuse_lost(*device);
    device->require_ready(call.cancel);
  }
}

void Session::take_inputs(Call& call) const {
  const bool keep = may_leave(call);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (const State::Pair* const paged = call.paged_input(i)) {
      call.input_slots[i] = static_cast<std::uint8_t>(kPagedSlot + paged->axis);
      continue;
    }
    if (!fits_declared_shape(i, call.inputs[i])) check_input(i, call.inputs[i]);
    if (call.inputs[i].tensor == nullptr) {
      call.runtime_values[graph().inputs[i]] = call.inputs[i].runtime_value;
      call.borrows_inputs |= !keep;  // else they are staged
      continue;
    }
    const Tensor& given = *call.inputs[i].tensor;
    call.input_uses[i] = Tensor::Use(given, "an input");
    call.from[i] = call.inputs[i].tensor;
    call.input_slots[i] = slot_for(given, false, i, call.allow_copies);
    const bool needs_host = is_key(compiled_, i, given.desc());
    if (needs_host && !given.on_host() && given.size_bytes() > 0 && !call.allow_copies) {
      refuse_copy(false, i, *given.device(), "shapes depend on it and it is read on ", compiled_.devices[0]->name().c_str());
    }
    // Strings are taken as they are now: a caller may replace them during the run.
    const bool strings = given.desc().dtype == DType::kString;
    const bool may_go = keep && given.on_host() && !given.keeps_memory();
    if (call.input_slots[i] == UINT8_MAX || strings || may_go || misaligned(given) || (needs_host && !given.on_host())) {
      call.from[i] = stage(given.desc(), 0);
      copy_tensor_or_stop(call.inputs[i].tensor, call.from[i], call.cancel);
      call.input_slots[i] = 0;
    } else {
      call.borrows_inputs |= given.on_host() && !given.keeps_memory();
    }
  }
}

// Where the plan is to write each output: where the caller's tensor lies, else where it makes it, or on the CPU.
void Session::choose_output_slots(Call& call) const {
  for (std::size_t j = 0; j < call.outputs.size(); ++j) {
    const TensorPtr& given = call.outputs[j].tensor;
    if (given == nullptr) {
      if (call.outputs_on_device && !call.is_skipped(j)) call.output_slots[j] = kAnySlot;
      if (call.paged_output(j) != nullptr) call.output_slots[j] = kPagedSlot;
      if (const int slot = kHas_states && call.state != nullptr ? call.state->tensor_slot(j) : -1; slot >= 0)
        call.output_slots[j] = static_cast<std::uint8_t>(slot);
      continue;
    }
    if (graph().values[graph().outputs[j]].wraps) refuse_output(j, {}, *given);
    call.output_uses[j] = Tensor::Use(*given, "an output");
    given->require_writable("an output");
    const std::uint8_t slot = slot_for(*given, true, j, call.allow_copies);
    call.output_slots[j] = slot == UINT8_MAX ? 0 : slot;
  }
  check_overlap(call.inputs, call.outputs, call.overwrite_inputs, call.spare);
}

// Those whose descriptions the plan knows.
void Session::take_outputs(Call& call, const Plan& plan) const {
  const bool keep = may_leave(call);
  std::optional<OverwriteCheck> overwrites;
  if (call.overwrite_inputs) overwrites.emplace(compiled_, plan, call.from.span(), call.outputs, call.spare);
  for (std::size_t j = 0; j < call.outputs.size(); ++j) {
    const TensorDesc& desc = plan.outputs[j];
    if (call.to[j] != nullptr || desc.dtype == DType::kUndefined || desc.wraps || call.paged_output(j) != nullptr) continue;
    if (kHas_states && call.state != nullptr && call.state->tensor_slot(j) >= 0) {
      call.to[j] = call.state->make_output(j, desc);
      continue;
    }
    const TensorPtr& given = call.outputs[j].tensor;
    if (given != nullptr && !(given->desc() == desc)) refuse_output(j, desc, *given);
    const std::uint8_t slot = plan.output_slots[j];
    const bool there = given != nullptr && (given->device() == compiled_.devices[slot] || call.shared_output(j, slot) != nullptr);
    const bool direct = there && desc.dtype != DType::kString && !misaligned(*given) && !(keep && given->on_host()) &&
                        !(overwrites && overwrites->must_stage(j));
    call.to[j] = direct ? given : stage(desc, slot);
    call.uses_callers |= direct && given->on_host();
  }
}

namespace {

[[noreturn]] void fail_arena(const Error& e) {
  throw make_error(e.status, "the intermediate values of a run: %s", e.message)
      .with_device(e.device)
      .with_bytes(e.bytes_requested, e.bytes_available);
}

}  // namespace

std::unique_ptr<Execution> Session::take_first(PreparedPtr* prepared) {
  std::unique_ptr<Execution> taken;
  for (bool is_smaller = false;; is_smaller = true) {
    const std::optional<Error> failure = error_of([&] { taken = take_execution(**prepared, nullptr); });
    if (!failure) return taken;
    if (failure->status != EVN_ERROR_OUT_OF_MEMORY) throw *failure;
    PreparedPtr smaller = is_smaller ? nullptr : prepare_smaller(*(*prepared)->plan);
    if (smaller == nullptr) fail_arena(*failure);
    *prepared = std::move(smaller);
  }
}

namespace {

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

}  // namespace

void Session::execute(Call& call, PreparedPtr first, RunState state) {
  SmallArray<Buffer> inputs(call.from.size(), &spare_blocks_);
  SmallArray<Buffer> outputs(call.to.size(), &spare_blocks_);
  for (std::size_t i = 0; i < call.from.size(); ++i) {
    if (call.from[i] != nullptr) inputs[i] = call.from[i]->buffer();
    if (const State::Pair* const paged = call.paged_input(i)) inputs[i] = {static_cast<PageTable*>(paged->cache.get()), 0, 0};
  }
  state.inputs = inputs.span();
  state.outputs = outputs.span();
  state.runtime_values = call.runtime_values;
  state.shares = call.shares;
  state.borrows_inputs = call.borrows_inputs;
  SmallArray<std::uint8_t> listened(call.to.size(), &spare_blocks_);
  state.listened_outputs = listened.span();
  const BoundedRun bounded(compiled_, call.cancel);
  Flight flight;
  flight.first.execution = take_first(&first);
  flight.first.prepared = first;
  const auto run_part = [&](const Plan& plan, Execution& execution) {
    check_copies(plan, call.allow_copies);
    take_outputs(call, plan);
    for (std::size_t j = 0; j < call.to.size(); ++j) {
      const HostShare* const shared =
          call.to[j] != nullptr && call.to[j]->on_host() ? call.shared_output(j, plan.output_slots[j]) : nullptr;
      outputs[j] = shared != nullptr ? shared->buffer() : call.to[j] != nullptr ? call.to[j]->buffer() : Buffer{};
    }
    for (std::size_t j = 0; j < call.to.size(); ++j)
      listened[j] = call.to[j] != nullptr && call.to[j] == call.outputs[j].tensor && call.to[j]->on_host();
    state.uses_callers = call.uses_callers;
    try {
      execution.run(state);
    } catch (...) {
      if (execution.is_in_flight()) leave(call, flight);
      throw;
    }
  };
  RunTrace* const trace = state.trace;
  if (trace != nullptr) trace->sample_memory(first->plan.get());
  run_part(*first->plan, *flight.first.execution);
  for (PreparedPtr p = first; p->plan->has_continuation();) {
    const Execution& done = flight.latest();
    std::vector<TensorDesc> made;
    if (p->plan->host_node >= 0) {
      const std::uint64_t begin = trace != nullptr ? os::now_ns() : 0;
      made = run_host_node(call, *p->plan, done, state);
      if (trace != nullptr) trace->add_host_node(p->plan->host_node, begin);
    }
    const std::uint64_t start = trace != nullptr ? os::now_ns() : 0;
    p = find_next(*p, done, made);
    if (trace != nullptr) trace->add_span(TraceKind::kPrepare, start);
    flight.others.push_back({p, nullptr});
    flight.others.back().execution = take_execution(*p, &done);
    run_part(*p->plan, flight.latest());
  }
  own_strings(call);
  keep_executions(flight, state.number);
}

void Session::run_call(Call& call, const StopCondition& stop, std::uint64_t random_seed, ScheduledRun* scheduled,
                       std::uint64_t run_number) {
  static_cast<StopCondition&>(call.cancel) = stop;
  const HeapReclaim not_here(false);     // a run of a body: there are locks
  const CancelScope scope(call.cancel);  // of what this thread does itself: planning, host operators
  std::optional<RunTrace> trace;
  std::shared_ptr<Trace> to = trace_to_record();
  if (to == nullptr && call.measured != nullptr) to = call.measured;
  if (to != nullptr) trace.emplace(std::move(to), compiled_);
  if (call.cancel.stop()) call.cancel.fail();
  if (trace && scheduled != nullptr && scheduled->waited_ns() != 0)
    trace->add_span(TraceKind::kQueue, os::now_ns() - scheduled->waited_ns());
  if (compiled_.has_runtime_values) call.runtime_values.resize(graph().values.size());
  settle_devices(call);
  take_inputs(call);
  choose_output_slots(call);
  if (!compiled_.shared_inputs.empty()) {
    share_inputs(call);
    share_outputs(call);
  }
  const std::uint64_t start = trace ? os::now_ns() : 0;
  const PreparedPtr prepared = find_plan(call);
  if (trace) trace->add_span(TraceKind::kPrepare, start);
  RunState state;
  state.stop = stop;
  state.listener = call.listener;
  state.random_seed = random_seed;
  state.number = run_number;
  state.run = scheduled;
  state.trace = trace ? &*trace : nullptr;
  if (scheduled == nullptr) return execute(call, prepared, state);
  scheduled->set_alone(prepared->help_worth.begin_alone());
  execute(call, prepared, state);
  if (const std::uint64_t begin = scheduled->first_help_ns(); begin != 0)
    prepared->help_worth.note(os::now_ns() - begin, scheduled->saved_ns());
}

namespace {

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

void Session::run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request) {
  const UnderWay under_way(*runtime());
  RunNote note(statistics(), request.priority, request.submitted_ns, request.times);
  note.follow([&] {
    std::shared_ptr<Session> other;
    Session* here = this;
    for (std::size_t left = runtime()->device_count();; --left) {  // one after the other may be lost
      try {
        return here->run_here(inputs, outputs, request, note);
      } catch (const Error& e) {
        if (!kHas_devices || e.status != EVN_ERROR_DEVICE_LOST || left == 0) throw;
        other = here->after_loss(e, request);
      }
      here = other.get();
    }
  });
}

void Session::run_here(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request, RunNote& note) {
  if (kHas_states && request.state != nullptr) return run_with_state(inputs, outputs, request, note);
  const std::uint64_t begin = batcher_ != nullptr ? os::now_ns() : 0;
  if (kHas_devices && split_ != nullptr && split_->run(inputs, outputs, request, note)) return;
  run_noted(inputs, outputs, request, note, nullptr);
  if (kHas_requests && batcher_ != nullptr) note_duration(os::now_ns() - begin);
}

void Session::run_noted(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request, RunNote& note,
                        StateRun* state) {
  const std::uint64_t limit = request.timeout_ns != 0 ? request.timeout_ns : compiled_.limits().run_time_ns;
  StopCondition stop = request.stop;
  if (const Cancel* outer = CancelScope::current()) stop.join(*outer);  // of work of which the run is a part
  if (limit != 0) {
    const std::uint64_t end = deadline_clock_ns() + std::min(limit, UINT64_MAX / 2);
    stop.deadline_ns = stop.deadline_ns != 0 ? std::min(stop.deadline_ns, end) : end;
  }
  check_counts(inputs.size(), outputs.size());
  Call call{inputs, outputs, &spare_blocks_, request.allow_copies};
  call.state = state;
  call.skipped = request.skipped;
  call.outputs_on_device = request.outputs_on_device;
  call.overwrite_inputs = request.overwrite_inputs;
  call.listener = request.listener;
  if (kHas_devices && watch_ != nullptr) call.measured = watch_->begin_run();
  static_cast<StopCondition&>(call.cancel) = stop;
  ScheduledRun scheduled(runtime()->scheduler(), {request.priority, stop.deadline_ns}, group_.get(), call.cancel);
  scheduled.enter();
  note.begin(scheduled);
  run_call(call, stop, request.random_seed, &scheduled, arenas_->begin_run());
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const TensorPtr& given = outputs[j].tensor;
    if (given != nullptr && given != call.to[j]) copy_tensor_or_stop(call.to[j], given, call.cancel);
  }
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j] || call.is_skipped(j) || call.paged_output(j) != nullptr) continue;
    outputs[j].tensor = call.to[j];
    if (call.to[j] == nullptr) outputs[j].runtime_value = call.runtime_values[graph().outputs[j]];
  }
  note.end(scheduled);
  if (kHas_devices && call.measured != nullptr) note_parts(*call.measured);
}

}  // namespace evn
