// Sessions: their creation, the cache of plans, and the rare paths of a run (session_run.cc), compiled for size.
#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "base/error.h"
#include "kept_features.h"
#include "runtime/batch/batcher.h"
#include "runtime/session/compile_shared.h"
#include "runtime/session/session_call.h"
#include "runtime/split/row_split.h"
#include "runtime/split/split_watch.h"

namespace evn {
namespace {

constexpr std::size_t kPlanCacheBytes = 16u << 20;  // bookkeeping of all plans of a session; the newest is always kept
constexpr std::size_t kMaxPlans = 64;
constexpr std::size_t kFewPlans = 8;  // from so many on, a plan that was used for one run of shapes only is made over
constexpr std::size_t kMaxNext = 8;   // plans that go on from one

const char* model_name(const LoadedModel& model) { return model.file_name.empty() ? "(from a buffer)" : model.file_name.c_str(); }

// With an execution of it.
std::size_t held_bytes(const Plan& plan) { return plan.bookkeeping_bytes + plan.buffers.size() * sizeof(Buffer); }

std::shared_ptr<ArenaStore> make_arenas(Runtime& runtime, const SessionRequest& request) {
  const SessionConfig& configured = request.settings->config.session;
  const std::uint64_t budget = request.idle_arena_bytes != 0 ? request.idle_arena_bytes : configured.idle_arena_bytes;
  if (request.share_arenas.value_or(configured.share_arenas)) return runtime.shared_arenas(budget);
  return std::make_shared<ArenaStore>(runtime.arenas(), budget);
}

std::string statistics_name(const LoadedModel& model, const SessionRequest& request) {
  if (!request.name.empty()) return request.name;
  return model.file_name.empty() ? "model" : model.file_name;
}

int concurrency_of(const SessionRequest& request) {
  return request.concurrency != 0 ? request.concurrency : request.settings->config.session.concurrency;
}

}  // namespace

Session::Session(ModelPtr model, SessionRequest request, const CacheConfig& cache)
    : Session(model, with_settings(std::move(request), *model->runtime), cache, nullptr, nullptr, os::now_ns()) {}

Session::Session(ModelPtr model, const SessionRequest& request, const CacheConfig& cache, std::shared_ptr<ArenaStore> arenas,
                 std::shared_ptr<RunGroup> group, std::uint64_t begin_ns)
    : stale_copies_{model, request.settings},
      owned_(compile_shared(model, request, cache)),
      arenas_(arenas != nullptr ? std::move(arenas) : make_arenas(*compiled_.model->runtime, request)),
      spare_blocks_(list_bytes(graph())),
      concurrency_(concurrency_of(request)),
      group_(group != nullptr ? std::move(group) : std::make_shared<RunGroup>(concurrency_)),
      identity_(request.identity != nullptr
                    ? request.identity
                    : std::make_shared<SessionIdentity>(request.listed ? &runtime()->statistics() : nullptr,
                                                        statistics_name(*compiled_.model, request), concurrency_)) {
  if (request.identity == nullptr) set_concurrency();
  for (Device* device : compiled_.devices) Runtime::require_not_forked(*device);
  make_bodies(request);
  set_default_values(request);
  if (request.batching.max_batch != 0) {
    if (!kHas_requests)
      fail(EVN_ERROR_UNSUPPORTED,
           "batching is asked for, and this build of the library has no feature \"requests\" (EVN_FEATURES)");
    batcher_ = std::make_unique<Batcher>(compiled_, request.batching);
  }
  const bool is_whole = kHas_devices && !request.is_body && !request.is_part && request.assigned == nullptr;
  if (is_whole && !request.settings->config.split_devices.empty()) split_ = std::make_unique<RowSplit>(compiled_, request);
  if (is_whole) watch_ = SplitWatch::make(compiled_);
  const std::uint64_t duration_ns = os::now_ns() - begin_ns;
  LogEvent(runtime()->log(), EVN_LOG_INFO, "session.created")
      .device(request.device.c_str())
      .field("file", compiled_.model->file_name.c_str())
      .field("nodes", graph().nodes.size())
      .field("devices", compiled_.devices.size())
      .field("packed_values", compiled_.packed_count)
      .field("duration_ns", duration_ns)
      .write("made a session of %s: %zu nodes on %zu devices, %llu ms", model_name(*compiled_.model), graph().nodes.size(),
             compiled_.devices.size(), static_cast<unsigned long long>(duration_ns / 1'000'000));
}

Session::~Session() {
  // Members of features that the build lacks are null, and their destructors need not be linked.
  if (!kHas_requests) static_cast<void>(batcher_.release());
  if (!kHas_devices) static_cast<void>(split_.release());
  if (!kHas_devices) static_cast<void>(watch_.release());
}

Session::StaleCopies::~StaleCopies() {
  if (settings->generation != model->runtime->settings()->generation) model->store.drop_unused();
}

void Session::trace_like(const Session& other) {
  if (const std::shared_ptr<const Trace> traced = other.trace_to_record()) start_trace(traced->capacity(), traced->is_serial());
}

std::vector<Device*> Session::devices() const {
  std::vector<Device*> devices = compiled_.devices;
  if (!kHas_devices || split_ == nullptr) return devices;
  for (const RowSplit::Share& part : split_->shares()) {
    const std::vector<Device*>& own = part.session->compiled().devices;
    devices.insert(devices.end(), own.begin(), own.end());
  }
  return devices;
}

// What the parts of split nodes have taken in a run that has ended.
void Session::note_parts(const Trace& trace) const noexcept {
  try {
    if (!watch_->note(trace, identity_->speeds)) return;
    if (const std::shared_ptr<PlacementOwner> owner = identity_->owner.lock()) owner->share_anew(*this);
  } catch (...) {  // no memory to think about it: the shares stay
  }
}

void Session::note_duration(std::uint64_t duration_ns) noexcept { batcher_->note_duration(duration_ns); }

void Session::make_bodies(const SessionRequest& request) {
  const ModelPtr& model = compiled_.model;
  if (model->bodies.empty()) return;
  bodies_.resize(graph().nodes.size());
  SessionRequest within = request;
  within.identity = nullptr;
  within.listed = false;
  within.is_body = true;
  within.assigned = nullptr;
  within.batching = {};
  within.is_of_batches = request.joins_requests();
  for (std::size_t i = 0; i < bodies_.size(); ++i) {
    const auto body = model->bodies.find(graph().nodes[i].name);
    if (body != model->bodies.end()) bodies_[i].reset(new Session(body->second, within, {}, arenas_, nullptr, os::now_ns()));
  }
}

Session::Prepared::~Prepared() {
  while (idle != nullptr) idle = std::move(idle->next);
}

void Session::add_plans(const std::vector<PreparedPtr>& plans, SessionMemoryStats* stats) const {
  for (const PreparedPtr& p : plans) {
    ++stats->plan_count;
    stats->plan_bytes += held_bytes(*p->plan);
    add_plans(p->next, stats);
  }
}

void Session::check_input(std::size_t index, const RunValue& given) const {
  const Value& want = graph().values[graph().inputs[index]];
  const TensorDesc& have = given.tensor != nullptr ? given.tensor->desc() : given.runtime_value->desc;
  if (want.wraps || have.wraps) {
    if (have.dtype == want.dtype && have.wraps == want.wraps) return;  // evn_value_create has checked the parts
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" is of type %s, the model wants %s", index, want.name.c_str(),
         have.type_string().c_str(), TensorDesc{want.dtype, {}, want.wraps}.type_string().c_str());
  }
  if (have.dtype != want.dtype) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has dtype %s, the model wants %s", index, want.name.c_str(),
         dtype_name(have.dtype), dtype_name(want.dtype));
  }
  if (want.has_shape && !fits_declared_shape(index, given)) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has shape %s, the model wants %s", index, want.name.c_str(),
         have.shape.to_string().c_str(), want.shape.to_string().c_str());
  }
}

void Session::refuse_output(std::size_t index, const TensorDesc& want, const Tensor& have) const {
  const Value& value = graph().values[graph().outputs[index]];
  if (value.wraps) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is of type %s, a tensor is given for it", index, value.name.c_str(),
         TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
  }
  fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is %s%s, the given tensor is %s%s", index, value.name.c_str(),
       dtype_name(want.dtype), want.shape.to_string().c_str(), dtype_name(have.desc().dtype),
       have.desc().shape.to_string().c_str());
}

void Session::refuse_copy(bool output, std::size_t index, const Device& given, const char* why, const char* what) const {
  const std::string& value = graph().values[(output ? graph().outputs : graph().inputs)[index]].name;
  throw make_error(EVN_ERROR_INVALID_ARGUMENT, "%s %zu \"%s\" lies on device %s, %s%s; allow_copies is 0",
                   output ? "output" : "input", index, value.c_str(), given.name().c_str(), why, what)
      .with_device(given.name().c_str());
}

void Session::refuse_foreign(bool output, std::size_t index, const Device& given) const {
  std::string names;
  for (const Device* device : compiled_.devices) names += (names.empty() ? "" : ", ") + device->name();
  refuse_copy(output, index, given, "which the session does not use (it uses ", (names + ")").c_str());
}

Signature Session::signature_of(const Call& call) const {
  Signature s;
  s.values.resize(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    s.inputs.push_back(call.input_desc(i));
    s.input_slots.push_back(call.input_slots[i]);
    if (!is_key(compiled_, i, s.inputs[i])) continue;
    const Tensor& t = *call.from[i];
    const auto* bytes = static_cast<const unsigned char*>(t.buffer().address());
    if (t.size_bytes() > 0) s.values[i].assign(bytes, bytes + t.size_bytes());
  }
  s.output_slots.assign(call.output_slots.span().begin(), call.output_slots.span().end());
  s.skipped.assign(call.skipped.begin(), call.skipped.end());
  s.shares_inputs = call.shares_inputs;
  s.shares_outputs = call.shares_outputs;
  return s;
}

// Takes another session's plan for the call, makes one, or makes one over.
Session::PreparedPtr Session::prepare(const Call& call) {
  SharedPlans& shared = *compiled_.plans;
  if (std::shared_ptr<Plan> found = shared.find([&](const Plan& p) { return matches(p, call); })) return remember(std::move(found));
  const std::uint64_t begin_ns = os::now_ns();
  const Signature signature = signature_of(call);
  std::shared_ptr<Plan> plan;
  bool made_over = false;
  if (std::shared_ptr<Plan> old = take_stale_plan(signature)) {
    plan = replan(compiled_, std::move(old), signature);
    made_over = plan != nullptr;
  }
  if (plan == nullptr) plan = make_plan(compiled_, signature);
  if (std::shared_ptr<Plan> smaller = fits_beside(*plan) ? nullptr : smaller_plan(*plan)) plan = std::move(smaller);
  log_plan(*plan, os::now_ns() - begin_ns, made_over);
  shared.add(plan);
  return remember(std::move(plan));
}

// Whether the arena of a run fits on the devices beside what is in use there; what is kept for runs to come makes room.
bool Session::fits_beside(const Plan& plan) const {
  const std::uint64_t idle = arenas_->stats().idle_bytes;
  for (std::size_t slot = 0; slot < plan.arena_bytes.size(); ++slot) {
    const Pool& pool = compiled_.devices[slot]->pool();
    if (pool.is_limited() && plan.arena_bytes[slot] > pool.left() + idle) return false;
  }
  return true;
}

// The plan with its steps in an order that takes less; null where there is none.
std::shared_ptr<Plan> Session::smaller_plan(const Plan& plan) const {
  if (plan.is_small || plan.before != nullptr) return nullptr;
  std::shared_ptr<Plan> smaller = make_plan(compiled_, *plan.signature, true);
  const auto total = [](const Plan& p) { return std::accumulate(p.arena_bytes.begin(), p.arena_bytes.end(), std::uint64_t{0}); };
  const std::uint64_t before = total(plan), after = total(*smaller);
  if (after >= before) return nullptr;
  LogEvent(runtime()->log(), EVN_LOG_INFO, "memory.spared")
      .device(compiled_.devices[0]->name().c_str())
      .field("step", "order")
      .field("file", compiled_.model->file_name.c_str())
      .field("bytes", before - after)
      .field("bytes_needed", before)
      .write("a run of %s needs %llu bytes of intermediate values: another order of its steps, %llu bytes less",
             model_name(*compiled_.model), static_cast<unsigned long long>(before),
             static_cast<unsigned long long>(before - after));
  return smaller;
}

// The plan with another order of its steps, in the place of one for which a device has refused memory.
Session::PreparedPtr Session::prepare_smaller(const Plan& refused) {
  std::shared_ptr<Plan> plan = smaller_plan(refused);
  if (plan == nullptr) return nullptr;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    std::erase_if(plans_, [&](const PreparedPtr& p) { return p->plan.get() == &refused; });
  }
  return remember(std::move(plan));
}

// A plan to be made over, when there are some: shapes that never come again (a cache that grows) would fill the cache of plans with
// what costs time to make and is never used. The latest goes first, whose memory is the nearest, and where many shapes come in
// turns the others stay. One that came back is left where it is, and so is one that gives other outputs, or elsewhere.
std::shared_ptr<Plan> Session::take_stale_plan(const Signature& signature) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (plans_.size() < kFewPlans) return nullptr;
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if ((*it)->came_back || it->use_count() != 1 || (*it)->plan.use_count() != 1) continue;
    const Signature& old = *(*it)->plan->signature;
    if (old.skipped != signature.skipped || old.output_slots != signature.output_slots) continue;
    if (old.shares_inputs != signature.shares_inputs || old.shares_outputs != signature.shares_outputs) continue;
    if (!compiled_.plans->withdraw((*it)->plan)) continue;
    // Copied, not moved: the count of the last run that used it was read without an order, which the end of `Prepared` brings.
    std::shared_ptr<Plan> plan = (*it)->plan;
    plans_.erase(it);
    return plan;
  }
  return nullptr;
}

Session::PreparedPtr Session::remember(std::shared_ptr<Plan> plan) {
  auto prepared = std::make_shared<Prepared>();
  prepared->plan = std::move(plan);
  const std::lock_guard<Mutex> lock(mutex_);
  plans_.insert(plans_.begin(), prepared);
  std::size_t bytes = 0;
  std::size_t keep = 0;
  while (keep < plans_.size() && keep < kMaxPlans) {
    bytes += held_bytes(*plans_[keep]->plan);
    if (keep > 0 && bytes > kPlanCacheBytes) break;
    ++keep;
  }
  plans_.resize(keep);
  return prepared;
}

// The plan that goes on where `prepared` ended, for the values that its run came to, or for what its host node made. Kept when the
// values are few bytes. Strings are addresses, which say nothing in another run.
Session::PreparedPtr Session::find_next(Prepared& prepared, const Execution& done, std::span<const TensorDesc> made) {
  const Plan& plan = *prepared.plan;
  std::vector<const void*> fetched;
  std::vector<std::size_t> sizes;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < plan.fetch.size(); ++i) {
    fetched.push_back(done.address(plan.fetch_buffers[i]));
    sizes.push_back(plan.buffers[plan.fetch_buffers[i]].buffer.size);
    bytes += sizes[i];
    if (graph().values[plan.fetch[i]].dtype == DType::kString) bytes = kMaxKeyBytes + 1;
  }
  const auto fits = [&](const Plan& next) {
    if (!std::equal(made.begin(), made.end(), next.made.begin(), next.made.end())) return false;
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      if (std::memcmp(next.known[plan.fetch[i]]->data.get(), fetched[i], sizes[i]) != 0) return false;
    }
    return true;
  };
  if (bytes <= kMaxKeyBytes) {
    const std::lock_guard<Mutex> lock(mutex_);
    const auto it = std::find_if(prepared.next.begin(), prepared.next.end(), [&](const PreparedPtr& p) { return fits(*p->plan); });
    if (it != prepared.next.end()) {
      std::rotate(prepared.next.begin(), it, it + 1);
      return prepared.next[0];
    }
  }
  auto next = std::make_shared<Prepared>();
  const std::uint64_t begin_ns = os::now_ns();
  next->plan = continue_plan(compiled_, prepared.plan, fetched, made);
  log_plan(*next->plan, os::now_ns() - begin_ns, false);
  const std::lock_guard<Mutex> lock(mutex_);
  if (bytes > kMaxKeyBytes) prepared.next.clear();
  prepared.next.insert(prepared.next.begin(), next);
  if (prepared.next.size() > kMaxNext) prepared.next.pop_back();
  return next;
}

// Runs the node that the plan ended with; returns what it made.
std::vector<TensorDesc> Session::run_host_node(Call& call, const Plan& plan, const Execution& done, const RunState& state) {
  const Node& node = graph().nodes[plan.host_node];
  std::vector<RuntimeValuePtr> inputs(node.inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (plan.host_buffers[k] == Plan::kNoBuffer) {
      if (node.inputs[k] != kNoValue) inputs[k] = call.runtime_values[node.inputs[k]];
      continue;
    }
    auto runtime_value = std::make_shared<RuntimeValue>();
    runtime_value->desc = plan.host_inputs[k];
    runtime_value->data = std::shared_ptr<const void>(std::shared_ptr<const void>(), done.address(plan.host_buffers[k]));
    runtime_value->borrowed = true;
    inputs[k] = std::move(runtime_value);
  }
  std::vector<RuntimeValuePtr> outputs(node.outputs.size());
  HostRun services(*runtime(), compiled_.limits(), bodies_.empty() ? nullptr : bodies_[plan.host_node].get(), state.stop,
                   state.random_seed, state.run, state.number);
  std::vector<TensorDesc> made(outputs.size());
  naming_node(node.name, [&] {
    const HeapReclaim allowed(true);
    HostContext context{node, inputs, outputs, services};
    node.op->host(context);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      EVN_CHECK(outputs[k] != nullptr);
      const Value& value = graph().values[v];
      made[k] = outputs[k]->desc;
      if (made[k].dtype != value.dtype || made[k].wraps != value.wraps) {
        fail(EVN_ERROR_INVALID_MODEL, "output %zu of %s is of type %s, %s was expected", k, node.op->name,
             made[k].type_string().c_str(), TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
      }
      call.runtime_values[v] = services.keep(outputs[k]);
    }
  });
  return made;
}

// Out of line, where they are small.
Session::Call::~Call() = default;
Session::Flight::~Flight() = default;

// What this run's steps and inputs keep, the outputs must keep for themselves.
void Session::own_strings(Call& call) const {
  for (std::size_t j = 0; j < call.to.size(); ++j) {
    if (call.to[j] == nullptr || call.to[j]->desc().dtype != DType::kString) continue;
    Tensor& t = *call.to[j];
    auto texts = std::make_shared<TextPool>(compiled_.devices[0]->ledger());
    auto* elements = static_cast<TextElement*>(t.buffer().address());
    texts->copy(elements, static_cast<std::size_t>(t.desc().shape.elements()), elements);
    t.set_texts(std::move(texts));
  }
}

void Session::run_with_state(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request,
                             RunNote& note) {
  check_counts(inputs.size(), outputs.size());
  if (State& s = *request.state; &s.session() != this && s.session().identity() == identity_) s.follow(shared_from_this(), true);
  StateRun state(*request.state, *this, inputs, outputs, request.skipped);
  run_noted(state.inputs(), state.outputs(), request, note, &state);
  state.commit();
}

// The run has failed, and devices still work for it: they get all that they use. Where there is no memory for that, the run waits.
void Session::leave(Call& call, Flight& flight) const noexcept {
  Execution& latest = flight.latest();
  std::shared_ptr<Flight> held;
  try {
    flight.graph = owned_;
    flight.arenas = arenas_;
    for (const auto& side : {call.from.span(), call.to.span()})
      flight.tensors.insert(flight.tensors.end(), side.begin(), side.end());
    for (const RunValue& v : call.inputs) flight.tensors.push_back(v.tensor);
    for (const RunValue& v : call.outputs) flight.tensors.push_back(v.tensor);
    flight.runtime_values = call.runtime_values;
    for (const RunValue& v : call.inputs) flight.runtime_values.push_back(v.runtime_value);
    for (const RunShare& s : call.shares) flight.shares.push_back(s.share);
    for (auto* side : {&call.input_uses, &call.output_uses}) {
      for (Tensor::Use& use : side->span()) flight.uses.push_back(std::move(use));
    }
    held = std::make_shared<Flight>(std::move(flight));
  } catch (const std::bad_alloc&) {
    return latest.wait_in_flight();
  }
  latest.hold_in_flight(held);
}

std::vector<RuntimeValuePtr> Session::run_values(std::span<const RuntimeValuePtr> inputs, const StopCondition& stop,
                                                 std::uint64_t random_seed, ScheduledRun* scheduled, std::uint64_t run_number) {
  check_counts(inputs.size(), graph().outputs.size());
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
  Call call{in.span(), out.span(), &spare_blocks_, false};
  run_call(call, stop, random_seed, scheduled, run_number);
  std::vector<RuntimeValuePtr> made(out.size());
  for (std::size_t j = 0; j < made.size(); ++j)
    made[j] = call.to[j] != nullptr ? runtime_value_of(call.to[j]) : call.runtime_values[graph().outputs[j]];
  return made;
}

}  // namespace evn
