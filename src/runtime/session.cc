#include "runtime/session.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/small_array.h"

namespace evn {
namespace {

constexpr std::size_t kPlanCacheBytes = 16u << 20;  // bookkeeping of all plans of a session; the newest is always kept
constexpr std::size_t kMaxPlans = 64;
constexpr std::size_t kFewPlans = 8;                // from so many on, a plan that was used for one run of shapes only is made over
constexpr std::size_t kMaxNext = 8;                  // plans that go on from one

const char* model_name(const LoadedModel& model) { return model.file_name.empty() ? "(from a buffer)" : model.file_name.c_str(); }

}  // namespace

// One run's tensors: the caller's, and beside them those that the plan reads and writes, which are staged copies where a tensor
// lies outside the session's devices or is not aligned.
struct Session::Call {
  std::span<const RunValue> inputs;
  std::span<RunValue> outputs;   // empty: to be created
  bool allow_copies;
  SmallArray<TensorPtr> from{inputs.size()};
  SmallArray<TensorPtr> to{outputs.size()};
  SmallArray<std::uint8_t> input_slots{inputs.size()};
  SmallArray<std::uint8_t> output_slots{outputs.size()};
  std::vector<BoxPtr> boxes = {};  // per value; empty where the graph has none
  SmallArray<Tensor::Use> input_uses{inputs.size()};    // of the caller's tensors
  SmallArray<Tensor::Use> output_uses{outputs.size()};
  Cancel cancel = {};

  const TensorDesc& input_desc(std::size_t i) const { return from[i] != nullptr ? from[i]->desc() : inputs[i].box->desc; }
};

Session::Session(ModelPtr model, const SessionRequest& request, const CacheConfig& cache)
    : Session(std::move(model), request, cache, os::now_ns()) {}

Session::Session(ModelPtr model, const SessionRequest& request, const CacheConfig& cache, std::uint64_t begin_ns)
    : owned_(std::make_shared<CompiledGraph>(compile(std::move(model), request, cache))) {
  plans_.reserve(kMaxPlans + 1);
  make_bodies(request);
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

void Session::make_bodies(const SessionRequest& request) {
  const ModelPtr& model = compiled_.model;
  if (model->bodies.empty()) return;
  bodies_.resize(graph().nodes.size());
  for (std::size_t i = 0; i < bodies_.size(); ++i) {
    const auto body = model->bodies.find(graph().nodes[i].name);
    if (body != model->bodies.end()) bodies_[i] = std::make_unique<Session>(body->second, request);
  }
}

void Session::log_plan(const Plan& plan, std::uint64_t duration_ns, bool made_over) const {
  const LogSink& log = runtime()->log();
  if (!log.wants(EVN_LOG_DEBUG)) return;
  std::string shapes;
  for (const TensorDesc& desc : plan.signature.inputs) {
    if (shapes.size() < 256) shapes += (shapes.empty() ? "" : " ") + desc.shape.to_string();
  }
  std::uint64_t arena_bytes = 0;
  for (const std::size_t bytes : plan.arena_bytes) arena_bytes += bytes;
  LogEvent(log, EVN_LOG_DEBUG, "plan.created")
      .field("file", compiled_.model->file_name.c_str())
      .field("shapes", shapes.c_str())
      .field("part", plan.part)
      .field("steps", plan.steps.size())
      .field("arena_bytes", arena_bytes)
      .field("made_over", made_over ? 1 : 0)
      .field("duration_ns", duration_ns)
      .write("planned %s for %s: %zu steps, %llu bytes of arenas, %llu us", model_name(*compiled_.model), shapes.c_str(), plan.steps.size(),
             static_cast<unsigned long long>(arena_bytes), static_cast<unsigned long long>(duration_ns / 1000));
}

void Session::check_input(std::size_t index, const RunValue& given) const {
  const Value& want = graph().values[graph().inputs[index]];
  const TensorDesc& have = given.tensor != nullptr ? given.tensor->desc() : given.box->desc;
  if (want.wraps || have.wraps) {
    if (have.dtype == want.dtype && have.wraps == want.wraps) return check_box(*given.box);
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" is of type %s, the model wants %s", index, want.name.c_str(),
         have.type_string().c_str(), TensorDesc{want.dtype, {}, want.wraps}.type_string().c_str());
  }
  if (have.dtype != want.dtype) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has dtype %s, the model wants %s", index, want.name.c_str(), dtype_name(have.dtype),
         dtype_name(want.dtype));
  }
  if (!want.has_shape) return;
  bool fits = have.shape.rank() == want.shape.rank();
  for (int i = 0; fits && i < want.shape.rank(); ++i) fits = want.shape[i] < 0 || want.shape[i] == have.shape[i];
  if (!fits) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "input %zu \"%s\" has shape %s, the model wants %s", index, want.name.c_str(),
         have.shape.to_string().c_str(), want.shape.to_string().c_str());
  }
}

void Session::refuse_copy(bool output, std::size_t index, const Device& given, const std::string& wanted) const {
  const std::string& value = graph().values[(output ? graph().outputs : graph().inputs)[index]].name;
  throw make_error(EVN_ERROR_INVALID_ARGUMENT, "%s %zu \"%s\" lies on device %s, %s; allow_copies is 0", output ? "output" : "input", index,
                   value.c_str(), given.name().c_str(), wanted.c_str())
      .with_device(given.name().c_str());
}

// The device slot of a tensor, or UINT8_MAX when it lies outside the session's devices.
std::uint8_t Session::slot_for(const Tensor& tensor, bool output, std::size_t index, bool allow_copies) const {
  for (std::size_t s = 0; s < compiled_.devices.size(); ++s) {
    if (compiled_.devices[s] == tensor.device()) return static_cast<std::uint8_t>(s);
  }
  if (!allow_copies) {
    std::string names;
    for (const Device* device : compiled_.devices) names += (names.empty() ? "" : ", ") + device->name();
    refuse_copy(output, index, *tensor.device(), "which the session does not use (it uses " + names + ")");
  }
  return UINT8_MAX;
}

// Throws where the plan copies what the caller said may not be copied.
void Session::check_copies(const Plan& plan, bool allow_copies) const {
  if (allow_copies || plan.given_copies.empty()) return;
  const GivenCopy& c = plan.given_copies.front();
  const std::string& wants = compiled_.devices[c.plan_slot]->name();
  refuse_copy(c.is_output, static_cast<std::size_t>(c.index), *compiled_.devices[c.given_slot],
              (c.is_output ? "the plan makes it on " : "the plan reads it on ") + wants);
}

bool Session::matches(const Plan& plan, const Call& call) const {
  const Signature& s = plan.signature;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (s.input_slots[i] != call.input_slots[i] || !(s.inputs[i] == call.input_desc(i))) return false;
    if (!is_key(compiled_, i, s.inputs[i])) continue;
    const Tensor& t = *call.from[i];
    if (s.values[i].size() != t.size_bytes()) return false;
    if (t.size_bytes() > 0 && std::memcmp(s.values[i].data(), t.buffer().address(), t.size_bytes()) != 0) return false;
  }
  return std::equal(s.output_slots.begin(), s.output_slots.end(), call.output_slots.span().begin());
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
  return s;
}

Session::PreparedPtr Session::find_plan(const Call& call) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (!matches(*plans_[i]->plan, call)) continue;
      if (i > 0) {
        plans_[i]->came_back = true;
        std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(i), plans_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        drop_idle_but(plans_[0].get());
      }
      return plans_[0];
    }
  }
  const std::uint64_t begin_ns = os::now_ns();
  const Signature signature = signature_of(call);
  std::shared_ptr<Plan> plan;
  bool made_over = false;
  if (std::shared_ptr<Plan> old = take_stale_plan()) {
    plan = replan(compiled_, std::move(old), signature);
    made_over = plan != nullptr;
  }
  if (plan == nullptr) plan = make_plan(compiled_, signature);
  log_plan(*plan, os::now_ns() - begin_ns, made_over);
  return remember(std::move(plan));
}

// A plan to be made over, when there are some: shapes that never come again (a cache that grows) would fill the cache of plans with
// what costs time to make and is never used. The latest goes first, whose memory is the nearest, and where many shapes come in turns the
// others stay. One that came back is left where it is.
std::shared_ptr<Plan> Session::take_stale_plan() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (plans_.size() < kFewPlans) return nullptr;
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if ((*it)->came_back || it->use_count() != 1 || (*it)->plan.use_count() != 1) continue;
    std::shared_ptr<Plan> plan = std::move((*it)->plan);
    plans_.erase(it);
    return plan;
  }
  return nullptr;
}

Session::PreparedPtr Session::remember(std::shared_ptr<Plan> plan) {
  auto prepared = std::make_shared<Prepared>();
  prepared->plan = std::move(plan);
  prepared->idle.reserve(64);
  const std::lock_guard<std::mutex> lock(mutex_);
  plans_.insert(plans_.begin(), prepared);
  drop_idle_but(prepared.get());
  std::size_t bytes = 0;
  std::size_t keep = 0;
  while (keep < plans_.size() && keep < kMaxPlans) {
    bytes += plans_[keep]->plan->bookkeeping_bytes;
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
    const std::lock_guard<std::mutex> lock(mutex_);
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
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > kMaxKeyBytes) prepared.next.clear();
  prepared.next.insert(prepared.next.begin(), next);
  if (prepared.next.size() > kMaxNext) prepared.next.pop_back();
  return next;
}

// Only the latest plan keeps arenas between runs, so that changing shapes do not make memory grow.
void Session::drop_idle_but(const Prepared* current) {
  for (const PreparedPtr& p : plans_) {
    if (p.get() != current) p->idle.clear();
  }
}

std::unique_ptr<Execution> Session::take_execution(Prepared& prepared) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!prepared.idle.empty()) {
      std::unique_ptr<Execution> e = std::move(prepared.idle.back());
      prepared.idle.pop_back();
      return e;
    }
  }
  return std::make_unique<Execution>(compiled_, *prepared.plan);
}

void Session::keep_execution(const PreparedPtr& prepared, std::unique_ptr<Execution> execution) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool current = !plans_.empty() && plans_[0] == prepared;
  if (current && prepared->idle.size() < prepared->idle.capacity()) prepared->idle.push_back(std::move(execution));
}

namespace {

void check_output(const Value& value, const TensorDesc& want, const Tensor& have, std::size_t index) {
  if (have.desc() == want) return;
  fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is %s%s, the given tensor is %s%s", index, value.name.c_str(), dtype_name(want.dtype),
       want.shape.to_string().c_str(), dtype_name(have.desc().dtype), have.desc().shape.to_string().c_str());
}

void check_overlap(std::span<const TensorPtr> inputs, std::span<const TensorPtr> outputs) {
  const auto overlap = [](const Tensor& a, const Tensor& b) {
    if (a.device() != b.device() || a.size_bytes() == 0 || b.size_bytes() == 0) return false;
    const auto begin = [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.buffer().memory) + t.buffer().offset; };
    return a.on_host() ? begin(a) < begin(b) + b.size_bytes() && begin(b) < begin(a) + a.size_bytes()
                       : a.buffer().memory == b.buffer().memory;
  };
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j] == nullptr) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != nullptr && overlap(*inputs[i], *outputs[j])) fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps input %zu", j, i);
    }
    for (std::size_t k = 0; k < j; ++k) {
      if (outputs[k] != nullptr && overlap(*outputs[k], *outputs[j])) fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu overlaps output %zu", j, k);
    }
  }
}

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

TensorPtr Session::stage(const TensorDesc& desc) const {
  return std::make_shared<Tensor>(runtime(), &runtime()->cpu(), desc, false, Tensor::Fill::kNone);
}

// Whether the run may end while devices still work for it: then they touch no host memory that is not the library's to keep, and none
// that is given for outputs, which others could read and write at once.
bool Session::may_leave(const Call& call) const {
  return call.cancel.deadline_ns != 0 && std::any_of(compiled_.devices.begin(), compiled_.devices.end(),
                                                     [](const Device* d) { return !d->traits().host_addressable; });
}

// What earlier runs have left to a device stands before all that this one would do there.
void Session::settle_devices(const Call& call) const {
  for (Device* device : compiled_.devices) {
    if (!device->settle(call.cancel)) call.cancel.fail();
  }
}

void Session::take_inputs(Call& call) const {
  const bool keep = may_leave(call);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    check_input(i, call.inputs[i]);
    if (call.inputs[i].tensor == nullptr) {
      call.boxes[graph().inputs[i]] = call.inputs[i].box;
      continue;
    }
    const Tensor& given = *call.inputs[i].tensor;
    call.input_uses[i] = Tensor::Use(given, "an input");
    call.from[i] = call.inputs[i].tensor;
    call.input_slots[i] = slot_for(given, false, i, call.allow_copies);
    const bool needs_host = is_key(compiled_, i, given.desc());
    if (needs_host && !given.on_host() && given.size_bytes() > 0 && !call.allow_copies) {
      refuse_copy(false, i, *given.device(), "shapes depend on it and it is read on " + compiled_.devices[0]->name());
    }
    // Strings are taken as they are now: a caller may replace them during the run.
    const bool strings = given.desc().dtype == DType::kString;
    const bool may_go = keep && given.on_host() && !given.keeps_memory();
    if (call.input_slots[i] == UINT8_MAX || strings || may_go || misaligned(given) || (needs_host && !given.on_host())) {
      call.from[i] = stage(given.desc());
      copy_tensor_or_stop(call.inputs[i].tensor, call.from[i], call.cancel);
      call.input_slots[i] = 0;
    }
  }
}

// Where the plan is to write each output: where the caller's tensor lies, else on the CPU.
void Session::choose_output_slots(Call& call) const {
  for (std::size_t j = 0; j < call.outputs.size(); ++j) {
    const TensorPtr& given = call.outputs[j].tensor;
    if (given == nullptr) continue;
    const Value& value = graph().values[graph().outputs[j]];
    if (value.wraps) {
      fail(EVN_ERROR_INVALID_ARGUMENT, "output %zu \"%s\" is of type %s, a tensor is given for it", j, value.name.c_str(),
           TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
    }
    call.output_uses[j] = Tensor::Use(*given, "an output");
    given->require_writable("an output");
    const std::uint8_t slot = slot_for(*given, true, j, call.allow_copies);
    call.output_slots[j] = slot == UINT8_MAX ? 0 : slot;
  }
}

// Those whose descriptions the plan knows.
void Session::take_outputs(Call& call, const Plan& plan) const {
  const bool keep = may_leave(call);
  for (std::size_t j = 0; j < call.outputs.size(); ++j) {
    const TensorDesc& desc = plan.outputs[j];
    if (call.to[j] != nullptr || desc.dtype == DType::kUndefined || desc.wraps) continue;
    const TensorPtr& given = call.outputs[j].tensor;
    if (given != nullptr) check_output(graph().values[graph().outputs[j]], desc, *given, j);
    const bool direct = given != nullptr && desc.dtype != DType::kString && !misaligned(*given) && !(keep && given->on_host()) &&
                        given->device() == compiled_.devices[call.output_slots[j]];
    call.to[j] = direct ? given : stage(desc);
  }
  check_overlap(call.from.span(), call.to.span());
}

// Runs the node that the plan ended with; returns what it made.
std::vector<TensorDesc> Session::run_host_node(Call& call, const Plan& plan, const Execution& done, const RunState& state) {
  const Node& node = graph().nodes[plan.host_node];
  std::vector<BoxPtr> inputs(node.inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (plan.host_buffers[k] == Plan::kNoBuffer) {
      if (node.inputs[k] != kNoValue) inputs[k] = call.boxes[node.inputs[k]];
      continue;
    }
    auto box = std::make_shared<Box>();
    box->desc = plan.host_inputs[k];
    box->data = std::shared_ptr<const void>(std::shared_ptr<const void>(), done.address(plan.host_buffers[k]));
    box->borrowed = true;
    inputs[k] = std::move(box);
  }
  std::vector<BoxPtr> outputs(node.outputs.size());
  HostRun services(*runtime(), bodies_.empty() ? nullptr : bodies_[plan.host_node].get(), state.deadline_ns, state.random_seed);
  std::vector<TensorDesc> made(outputs.size());
  try {
    HostContext context{node, inputs, outputs, services};
    node.op->host(context);
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const ValueId v = node.outputs[k];
      if (v == kNoValue) continue;
      EVN_CHECK(outputs[k] != nullptr);
      const Value& value = graph().values[v];
      made[k] = outputs[k]->desc;
      if (made[k].dtype != value.dtype || made[k].wraps != value.wraps) {
        fail(EVN_ERROR_INVALID_MODEL, "output %zu of %s is of type %s, %s was expected", k, node.op->name, made[k].type_string().c_str(),
             TensorDesc{value.dtype, {}, value.wraps}.type_string().c_str());
      }
      call.boxes[v] = services.keep(outputs[k]);
    }
  } catch (Error& e) {
    if (e.node[0] == '\0') e.with_node(node.name.c_str());
    throw;
  }
  return made;
}

// A run from its first step on, with all that it works with: what devices need when the run has ended before them. Members that use
// others stand behind them.
struct Session::Flight {
  std::shared_ptr<const CompiledGraph> graph;
  PreparedPtr first, last;
  std::vector<TensorPtr> tensors;
  std::vector<BoxPtr> boxes;
  std::vector<Tensor::Use> uses;
  std::unique_ptr<Execution> execution;
  std::vector<std::unique_ptr<Execution>> parts;  // after the first; each uses the memory of those before

  Execution& latest() const { return parts.empty() ? *execution : *parts.back(); }
};

// The run has failed, and devices still work for it: they get all that they use. Where there is no memory for that, the run waits.
void Session::leave(Call& call, Flight& flight) const noexcept {
  Execution& latest = flight.latest();
  std::shared_ptr<Flight> held;
  try {
    flight.graph = owned_;
    for (const auto& side : {call.from.span(), call.to.span()}) flight.tensors.insert(flight.tensors.end(), side.begin(), side.end());
    for (const RunValue& v : call.inputs) flight.tensors.push_back(v.tensor);
    for (const RunValue& v : call.outputs) flight.tensors.push_back(v.tensor);
    flight.boxes = call.boxes;
    for (const RunValue& v : call.inputs) flight.boxes.push_back(v.box);
    for (auto* side : {&call.input_uses, &call.output_uses}) {
      for (Tensor::Use& use : side->span()) flight.uses.push_back(std::move(use));
    }
    held = std::make_shared<Flight>(std::move(flight));
  } catch (const std::bad_alloc&) {
    return latest.wait_in_flight();
  }
  latest.hold_in_flight(held);
}

void Session::execute(Call& call, const PreparedPtr& first, RunState state) {
  SmallArray<Buffer> inputs(call.from.size());
  SmallArray<Buffer> outputs(call.to.size());
  for (std::size_t i = 0; i < call.from.size(); ++i) {
    if (call.from[i] != nullptr) inputs[i] = call.from[i]->buffer();
  }
  state.inputs = inputs.span();
  state.outputs = outputs.span();
  state.boxes = call.boxes;
  Flight flight;
  flight.first = first;
  flight.execution = take_execution(*first);
  const auto run_part = [&](const Plan& plan, Execution& execution) {
    check_copies(plan, call.allow_copies);
    take_outputs(call, plan);
    for (std::size_t j = 0; j < call.to.size(); ++j) outputs[j] = call.to[j] != nullptr ? call.to[j]->buffer() : Buffer{};
    try {
      execution.run(state);
    } catch (...) {
      if (execution.is_in_flight()) leave(call, flight);
      throw;
    }
  };
  RunTrace* const trace = state.trace;
  if (trace != nullptr) trace->sample_memory(first->plan.get());
  run_part(*first->plan, *flight.execution);
  for (PreparedPtr p = first; p->plan->goes_on();) {
    const Execution& done = flight.latest();
    std::vector<TensorDesc> made;
    if (p->plan->host_node >= 0) {
      const std::uint64_t begin = trace != nullptr ? os::now_ns() : 0;
      made = run_host_node(call, *p->plan, done, state);
      if (trace != nullptr) trace->add_host_node(p->plan->host_node, begin);
    }
    const std::uint64_t start = trace != nullptr ? os::now_ns() : 0;
    flight.last = p = find_next(*p, done, made);
    if (trace != nullptr) trace->add_span(TraceKind::kPrepare, start);
    flight.parts.push_back(std::make_unique<Execution>(compiled_, *p->plan, &done));
    run_part(*p->plan, *flight.parts.back());
  }
  own_strings(call);
  flight.parts.clear();
  keep_execution(first, std::move(flight.execution));
}

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

void Session::run_call(Call& call, std::uint64_t deadline, std::uint64_t random_seed) {
  call.cancel.deadline_ns = deadline;
  const CancelScope scope(call.cancel);  // of what this thread does itself: planning, host operators
  std::optional<RunTrace> trace;
  if (std::shared_ptr<Trace> to = trace_to_record()) trace.emplace(std::move(to));
  if (compiled_.has_boxes) call.boxes.resize(graph().values.size());
  settle_devices(call);
  take_inputs(call);
  choose_output_slots(call);
  const std::uint64_t start = trace ? os::now_ns() : 0;
  const PreparedPtr prepared = find_plan(call);
  if (trace) trace->add_span(TraceKind::kPrepare, start);
  RunState state;
  state.deadline_ns = deadline;
  state.random_seed = random_seed;
  state.trace = trace ? &*trace : nullptr;
  execute(call, prepared, state);
}

void Session::run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request) {
  const std::uint64_t limit = request.timeout_ns != 0 ? request.timeout_ns : runtime()->config().limits.run_time_ns;
  const std::uint64_t deadline = limit != 0 ? deadline_clock_ns() + std::min(limit, UINT64_MAX / 2) : 0;
  check_counts(inputs.size(), outputs.size());
  Call call{inputs, outputs, request.allow_copies};
  run_call(call, deadline, request.random_seed);
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    const TensorPtr& given = outputs[j].tensor;
    if (given != nullptr && given != call.to[j]) copy_tensor_or_stop(call.to[j], given, call.cancel);
  }
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    if (outputs[j]) continue;
    outputs[j].tensor = call.to[j];
    if (call.to[j] == nullptr) outputs[j].box = call.boxes[graph().outputs[j]];
  }
}

std::vector<BoxPtr> Session::run_boxes(std::span<const BoxPtr> inputs, std::uint64_t deadline_ns, std::uint64_t random_seed) {
  check_counts(inputs.size(), graph().outputs.size());
  SmallArray<RunValue> in(inputs.size());
  SmallArray<RunValue> out(graph().outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EVN_CHECK(inputs[i] != nullptr);
    if (inputs[i]->is_tensor()) {
      in[i].tensor = tensor_of(runtime(), inputs[i]);
    } else {
      in[i].box = inputs[i];
    }
  }
  Call call{in.span(), out.span(), false};
  run_call(call, deadline_ns, random_seed);
  std::vector<BoxPtr> made(out.size());
  for (std::size_t j = 0; j < made.size(); ++j) made[j] = call.to[j] != nullptr ? box_of(call.to[j]) : call.boxes[graph().outputs[j]];
  return made;
}

}  // namespace evn
