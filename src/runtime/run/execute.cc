#include "runtime/run/execute.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "base/cancel.h"
#include "base/error.h"
#include "base/heap.h"
#include "runtime/run/paged_cache.h"
#include "runtime/run/stand_aside.h"

namespace evn {
namespace {

// The packed weights of a step while it runs: those that may be dropped stay meanwhile.
class PinnedWeights {
 public:
  // `room`: for what a step has of them, where the graph has such.
  PinnedWeights(const CompiledGraph& graph, const PlanStep& step, std::vector<Buffer>* room) : graph_(graph), packed_(step.packed) {
    if (!graph.is_paged || std::none_of(step.packed.begin(), step.packed.end(), is_paged)) return;
    EVN_CHECK(step.packed.size() <= room->size());
    room_ = *room;
    from_ = step.packed;
    for (; count_ < from_.size(); ++count_) {
      const Buffer& b = from_[count_];
      if (!is_paged(b)) {
        room_[count_] = b;
        continue;
      }
      try {
        room_[count_] = {graph_.model->store.pin(page_of(b), *graph_.model, held_), 0, b.size};
        ++held_;
      } catch (...) {
        unpin();
        throw;
      }
    }
    packed_ = room_.first(count_);
  }
  ~PinnedWeights() { unpin(); }
  PinnedWeights(const PinnedWeights&) = delete;
  PinnedWeights& operator=(const PinnedWeights&) = delete;

  std::span<const Buffer> packed() const { return packed_; }

 private:
  void unpin() noexcept {
    while (count_ > 0) {
      if (is_paged(from_[--count_])) graph_.model->store.unpin(page_of(from_[count_]));
    }
  }

  const CompiledGraph& graph_;
  std::span<const Buffer> packed_;
  std::span<const Buffer> from_;
  std::span<Buffer> room_;
  std::size_t count_ = 0;   // of from_, those that are pinned or need not be
  std::uint32_t held_ = 0;  // those that are pinned
};

constexpr double kNotedFlops = 1e6;  // a step of which is long enough for the system to move its thread meanwhile

}  // namespace

// Cold, that is for size: once for each plan and run that computes at a time.
[[gnu::cold]] Execution::Execution(const CompiledGraph& graph, const Plan& plan)
    : graph_(graph), plan_(plan), texts_(graph.devices[0]->ledger()) {
  bound_.resize(graph.devices.size());
  buffers_.resize(plan.buffers.size());
  latest_.resize(graph.devices.size());
  if (graph.is_paged) packed_.resize(graph.most_step_args);
  std::size_t copies = 0;
  for (const PlanStep& step : plan.steps) copies += step.kind == PlanStep::Kind::kCopy;
  host_copies_.reserve(copies);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    cancellation_point(2);
    const BufferSource& from = plan.buffers[i];
    buffers_[i] = from.buffer;
    if (from.source == Source::kInput || from.source == Source::kOutput || from.source == Source::kRuntimeValue) {
      patches_.push_back({static_cast<std::uint32_t>(i), from.source, from.slot, from.index});
    }
  }
}

void Execution::use_arena(ArenaLease arena, const Execution* before) noexcept {
  arena_ = std::move(arena);
  before_ = before;
  bool moved = before != nullptr;  // that one's may have moved
  for (std::size_t slot = 0; slot < bound_.size(); ++slot) {
    void* const memory = arena_.memory_on(*graph_.devices[slot]);
    moved |= memory != bound_[slot];
    bound_[slot] = memory;
  }
  if (!moved) return;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const BufferSource& from = plan_.buffers[i];
    if (from.source != Source::kArena) continue;
    const Execution* owner = this;
    while (owner->plan_.subplan != from.subplan) owner = owner->before_;
    buffers_[i].memory = owner->bound_[from.slot];
  }
}

void Execution::bind(const RunState& state) {
  for (const Patch& p : patches_) {
    cancellation_point();
    Buffer& buffer = buffers_[p.buffer];
    if (p.source == Source::kRuntimeValue) {
      buffer.memory = const_cast<void*>(state.runtime_values[static_cast<std::size_t>(p.index)]->data.get());  // never written
    } else if (p.source == Source::kInput && p.slot != 0 && plan_.signature->input_slots[static_cast<std::size_t>(p.index)] == 0) {
      const auto is_meant = [&](const RunShare& s) { return !s.is_output && s.index == p.index && s.slot == p.slot; };
      const auto found = std::find_if(state.shares.begin(), state.shares.end(), is_meant);
      EVN_CHECK(found != state.shares.end());
      buffer = found->share->buffer();
    } else {
      buffer = p.source == Source::kOutput ? state.outputs[p.index] : state.inputs[p.index];
    }
  }
}

void Execution::run(const RunState& state) {
  trace_ = state.trace;
  run_ = state.run;
  bind(state);
  texts_.clear();
  services_ = {&texts_, state.random_seed};
  static_cast<StopCondition&>(cancel_) = state.stop;
  for (std::size_t slot = 0; slot < latest_.size(); ++slot) latest_[slot] = {graph_.devices[slot]->all_enqueued(), {}};
  host_copies_.clear();
  copied_.clear();
  used_ = unsubmitted_ = in_flight_ = 0;
  staged_.clear();
  borrows_inputs_ = state.borrows_inputs;
  uses_callers_ = state.uses_callers;
  try {
    for (const RunShare& s : state.shares) {
      const Event given = s.share->begin();
      if (given.device != nullptr) latest_[s.slot].work[kShare] = given;
      shares_ = state.shares.first(shares_.size() + 1);
      used_ |= 1u << s.slot;
      unsubmitted_ |= 1u << s.slot;
    }
    run_steps(state);
    end_shares();
    tell_copied(state);
    wait_for_all();
  } catch (...) {
    while (!shares_.empty()) {
      try {
        end_shares();
      } catch (...) {  // the first is the one to report
      }
    }
    end_early();
    throw;
  }
}

// Gives the host its memory back behind the steps.
void Execution::end_shares() {
  while (!shares_.empty()) {
    const RunShare& s = shares_.back();
    shares_ = shares_.first(shares_.size() - 1);
    const Event given = s.share->end();
    if (given.device != nullptr) latest_[s.slot].work[kShare] = given;
  }
}

// Outputs with the last steps that use them, where these are steps of the host or copies: values that are outputs are made in the
// caller's memory, where later steps read them too.
void Execution::find_last_uses() {
  if (!last_uses_.empty()) return;
  std::vector<LastUse> found;
  std::vector<bool> is_seen(plan_.outputs.size());
  for (std::size_t i = plan_.steps.size(); i-- > 0;) {
    const PlanStep& step = plan_.steps[i];
    const bool is_kernel = step.kind == PlanStep::Kind::kKernel || step.kind == PlanStep::Kind::kRelayout;
    const std::size_t buffers = is_kernel ? step.desc.inputs.size() + step.desc.outputs.size() : 2;
    for (std::size_t b = step.buffers; b < step.buffers + buffers; ++b) {
      const BufferSource& from = plan_.buffers[b];
      if (from.source != Source::kOutput || is_seen[static_cast<std::size_t>(from.index)]) continue;
      is_seen[static_cast<std::size_t>(from.index)] = true;
      const bool is_copy = step.kind == PlanStep::Kind::kCopy;
      if (is_copy || graph_.devices[step.slot]->traits().host_addressable)
        found.push_back({i, static_cast<std::uint32_t>(from.index), is_copy});
    }
  }
  std::reverse(found.begin(), found.end());
  copied_.reserve(found.size());
  last_uses_ = std::move(found);
}

// Tells the listener which outputs the step was the last one to use; those that it copies, when the copies have ended.
void Execution::tell(const RunState& state, std::size_t step, std::size_t* told) {
  for (; *told < last_uses_.size() && last_uses_[*told].step <= step; ++*told) {
    const LastUse& use = last_uses_[*told];
    if (state.listened_outputs[use.output] == 0) continue;
    if (use.is_copy) copied_.push_back({latest_copy(plan_.steps[use.step]), use.output});
    else state.listener.ready(state.listener.context, use.output);
  }
}

void Execution::tell_copied(const RunState& state) {
  if (copied_.empty()) return;
  submit_all();
  wait([&](auto&& wait_here) {
    for (const Copied& copied : copied_) {
      wait_here(copied.ended);
      state.listener.ready(state.listener.context, copied.output);
    }
  });
}

void Execution::run_steps(const RunState& state) {
  std::size_t told = 0;
  const bool tells = state.listener.ready != nullptr && !plan_.has_continuation();  // a later part may use outputs of this one
  if (tells) find_last_uses();
  for (const PlanStep& step : plan_.steps) {
    const auto run_step = [&] {
      if (graph_.devices[step.slot]->traits().host_addressable && used_ > 1) wait_for_copies(step);
      StepTrace* const trace = trace_ != nullptr ? trace_->begin_step(step) : nullptr;
      if (step.kind == PlanStep::Kind::kCopy) {
        run_copy(step, trace);
      } else if (step.kind >= PlanStep::Kind::kAppend) {
        run_paged(step);
      } else {
        run_kernel(step, trace);
      }
      if (trace_ != nullptr && trace_->is_serial()) {
        for (const Event& event : latest_[step.slot].work) wait_for(event);
      }
      if (trace_ != nullptr) trace_->end_step(step, step.kind == PlanStep::Kind::kKernel ? 0 : buffers_[step.buffers].size);
      if (run_ != nullptr) {
        if (run_->must_pause()) run_->pause();
        if (step.plan.flops > kNotedFlops) run_->note_core();
      }
      if (cancel_.stop()) cancel_.fail();
      if (tells) tell(state, static_cast<std::size_t>(&step - plan_.steps.data()), &told);
    };
    completing_errors(run_step, [&](Error& e) {
      if (e.node[0] == '\0' && step.node >= 0) e.with_node(graph_.graph().nodes[step.node].name.c_str());
      if (e.device[0] == '\0') e.with_device(graph_.devices[step.slot]->name().c_str());
    });
  }
}

void Execution::run_kernel(const PlanStep& step, StepTrace* trace) {
  const std::size_t inputs = step.desc.inputs.size();
  const std::size_t outputs = step.desc.outputs.size();
  const Buffer* b = buffers_.data() + step.buffers;
  KernelCall call;
  call.kernel = step.kernel;
  call.cancel = &cancel_;
  call.trace = trace;
  call.run = run_;
  call.args.desc = &step.desc;
  call.args.plan = &step.plan;
  call.args.inputs = {b, inputs};
  call.args.outputs = {b + inputs, outputs};
  call.args.services = &services_;
  const PinnedWeights pins(graph_, step, &packed_);
  call.args.packed = pins.packed();
  call.args.scratch = b[inputs + outputs];
  used_ |= 1u << step.slot;
  unsubmitted_ |= 1u << step.slot;
  call.begun = &latest_[step.slot].work[kKernel];
  const Event done = graph_.devices[step.slot]->enqueue(call, {});
  if (done.device != nullptr) latest_[step.slot].work[kKernel] = done;
}

void Execution::run_copy(const PlanStep& step, StepTrace* trace) {
  const auto place = [&](std::uint8_t slot, const Buffer& buffer) {
    Device* device = graph_.devices[slot];
    return Location{device->traits().host_addressable ? nullptr : device, buffer};
  };
  Device* device = graph_.devices[step.slot];
  const bool of_runtime_value = plan_.buffers[step.buffers].source == Source::kRuntimeValue;
  const Location from = place(step.from_slot, of_runtime_value && cancel_.exists() ? staged(step.buffers) : buffers_[step.buffers]);
  const Location to = place(step.to_slot, buffers_[step.buffers + 1]);
  const Location* const on_host = from.device == nullptr ? &from : to.device == nullptr ? &to : nullptr;
  const bool written = on_host == &to;
  constexpr std::size_t kMostWaits = 4;
  Event waits[kMostWaits];
  std::size_t count = 0;
  if (on_host != nullptr) {
    wait([&](auto&& wait_here) {
      host_copies_.each_before(on_host->buffer, written, [&](const Event& copy) {
        if (count == kMostWaits) return wait_here(copy);
        waits[count++] = copy;
        return false;
      });
    });
  }
  used_ |= 1u << step.slot;
  unsubmitted_ |= 1u << step.slot;
  const Event done = device->copy_traced(from, to, {waits, count}, trace);
  if (done.device != nullptr) latest_copy(step) = done;
  if (on_host != nullptr) host_copies_.add(done, on_host->buffer, written);
}

// What lies in pages is the host's.
void Execution::run_paged(const PlanStep& step) {
  const auto& rows = step.plan.state<PagedRows>();
  void* const plain = buffers_[step.buffers].address();
  PagedCache& cache = static_cast<PagedCache&>(*static_cast<PageTable*>(buffers_[step.buffers + 1].memory));
  used_ |= 1u;
  if (step.kind == PlanStep::Kind::kGather) return cache.gather(rows.first, rows.count, rows.dtype, plain);
  cache.extend(rows.first, rows.count);
  if (step.kind == PlanStep::Kind::kAppend) cache.write(rows.first, rows.count, rows.dtype, plain);
}

// A run that may end before the device does: who gave the runtime value may not keep its bytes.
Buffer Execution::staged(std::uint32_t buffer) {
  const Buffer& from = buffers_[buffer];
  staged_.push_back(allocate_charged(graph_.devices[0]->ledger(), from.size, MemoryClass::kScratch));
  std::memcpy(staged_.back().get(), from.address(), from.size);
  return {staged_.back().get(), 0, from.size};
}

// Whether devices may go on when the run has returned: they use nothing that others may take away or write then.
bool Execution::can_leave() {
  if (uses_callers_) return false;
  if (!borrows_inputs_) return true;
  Cancel at_once;
  at_once.deadline_ns = 1;
  bool all = true;
  host_copies_.each_reading([&](const Event& copy) { return all &= copy.device->wait_or_stop(copy, at_once); });
  return all;
}

// Until the event has happened. Throws EVN_ERROR_DEVICE_LOST where the device comes into quarantine meanwhile and the run may leave
// it its work, EVN_ERROR_TIMEOUT where its time is over.
void Execution::wait_for(const Event& event) {
  if (event.device == nullptr) return;
  for (;;) {
    const Device::Waited waited = event.device->wait_bounded(event, cancel_);
    if (waited == Device::Waited::kEnded) return;
    if (waited == Device::Waited::kStopped) cancel_.fail();
    if (!can_leave()) return event.device->wait(event);
    event.device->refuse_quarantined();  // or it has ended the work of others meanwhile
  }
}

// Calls each(f), which calls f(event) for what is to be waited for. f gives true: it has happened.
template <typename F>
void Execution::wait(F&& each) {
  const std::uint64_t start = trace_ != nullptr ? os::now_ns() : 0;
  bool waited = false;
  std::optional<DeviceWait> other_requests;
  each([&](const Event& event) {
    if (event.device == nullptr) return true;
    if (run_ != nullptr) run_->leave();  // a core that only waits is another's
    if (run_ != nullptr && !other_requests) other_requests.emplace();
    wait_for(event);
    return waited = true;
  });
  other_requests.reset();
  if (waited && run_ != nullptr) run_->enter();
  if (trace_ != nullptr && waited) trace_->add_span(TraceKind::kWait, start);
}

// Before a step on the host: until it may use its memory. Meanwhile, and while it computes, devices go on with theirs. A step whose
// values are channels of others reaches beyond its buffers.
void Execution::wait_for_copies(const PlanStep& step) {
  submit_all();
  if (host_copies_.empty()) return;
  wait([&](auto&& wait_here) {
    if (step.desc.fusion.pitches != nullptr) return host_copies_.each(wait_here);
    const bool is_paged = step.kind >= PlanStep::Kind::kAppend;
    const std::size_t inputs = is_paged ? (step.kind == PlanStep::Kind::kAppend ? 1 : 0) : step.desc.inputs.size();
    const std::size_t buffers = is_paged ? 1 : inputs + step.desc.outputs.size() + 1;
    for (std::size_t i = 0; i < buffers; ++i) {
      const Buffer& buffer = buffers_[step.buffers + i];
      if (buffer.memory != nullptr && buffer.size > 0) host_copies_.each_before(buffer, i >= inputs, wait_here);
    }
  });
}

void Execution::submit_all() {
  for (std::size_t slot = 0; unsubmitted_ != 0 && slot < latest_.size(); ++slot) {
    if ((unsubmitted_ >> slot & 1) != 0) graph_.devices[slot]->submit();
    unsubmitted_ &= ~(1u << slot);
  }
}

void Execution::wait_for_all() {
  wait([&](auto&& wait_here) {
    for (const Latest& latest : latest_) {
      for (const Event& event : latest.work) wait_here(event);
    }
  });
  for (std::size_t slot = 0; slot < latest_.size(); ++slot) {
    if ((used_ >> slot & 1) != 0) graph_.devices[slot]->check_since(latest_[slot].begin);
  }
}

// Latest copy of this run in the direction of the step's copy.
Event& Execution::latest_copy(const PlanStep& step) {
  const auto is_host = [&](std::uint8_t slot) { return graph_.devices[slot]->traits().host_addressable; };
  return latest_[step.slot].work[is_host(step.from_slot) ? kUpload : is_host(step.to_slot) ? kDownload : kInnerCopy];
}

// The error that brought us here is the one to report: what devices say now is of no interest. Work of others is not waited for: it
// may wait for an event of the host.
void Execution::end_early() noexcept {
  for (std::size_t slot = 0; slot < latest_.size(); ++slot) {
    for (const Event& event : latest_[slot].work) {
      try {
        if (event.device == nullptr) continue;
        const Device::Waited waited = event.device->wait_bounded(event, cancel_);
        if (waited == Device::Waited::kQuarantined && !can_leave()) event.device->wait(event);
        else if (waited != Device::Waited::kEnded) in_flight_ |= 1u << slot;
      } catch (const Error&) {
      } catch (const std::bad_alloc&) {
        in_flight_ |= 1u << slot;
      }
    }
  }
}

void Execution::hold_in_flight(const std::shared_ptr<const void>& held) noexcept {
  for (std::size_t slot = 0; slot < latest_.size(); ++slot) {
    if ((in_flight_ >> slot & 1) == 0) continue;
    for (const Event& event : latest_[slot].work) {
      if (event.device != nullptr) event.device->leave_until(event, held);
    }
  }
}

void Execution::wait_in_flight() noexcept {
  for (std::size_t slot = 0; slot < latest_.size(); ++slot) {
    if ((in_flight_ >> slot & 1) == 0) continue;
    for (const Event& event : latest_[slot].work) {
      try {
        if (event.device != nullptr) event.device->wait(event);
      } catch (const Error&) {}
    }
  }
}

}  // namespace evn
