#include "runtime/session/plan_cache.h"

#include <cstring>
#include <numeric>

#include "base/error.h"

namespace evn {
namespace {

constexpr std::size_t kPlanCacheBytes = 16u << 20;  // bookkeeping of all plans of a session; the newest is always kept
constexpr std::size_t kMaxPlans = 64;
constexpr std::size_t kFewPlans = 8;  // from so many on, a plan that was used for one run of shapes only is made over
constexpr std::size_t kMaxNext = 8;   // plans that go on from one

// With an execution of it.
std::size_t held_bytes(const Plan& plan) { return plan.bookkeeping_bytes + plan.buffers.size() * sizeof(Buffer); }

}  // namespace

PreparedPlan::~PreparedPlan() {
  while (idle != nullptr) idle = std::move(idle->next);
}

Signature PlanCache::signature_of(const RunTensors& run) const {
  Signature s;
  s.values.resize(run.inputs.size());
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    s.inputs.push_back(run.input_desc(i));
    s.input_slots.push_back(run.input_slots[i]);
    if (!is_key(compiled_, i, s.inputs[i])) continue;
    const Tensor& t = *run.from[i];
    const auto* bytes = static_cast<const unsigned char*>(t.buffer().address());
    if (t.size_bytes() > 0) s.values[i].assign(bytes, bytes + t.size_bytes());
  }
  s.output_slots.assign(run.output_slots.span().begin(), run.output_slots.span().end());
  s.skipped.assign(run.skipped.begin(), run.skipped.end());
  s.shares_inputs = run.shares_inputs;
  s.shares_outputs = run.shares_outputs;
  return s;
}

bool PlanCache::matches(const Plan& plan, const RunTensors& run) const {
  const Signature& s = *plan.signature;
  for (std::size_t i = 0; i < run.inputs.size(); ++i) {
    if (s.input_slots[i] != run.input_slots[i] || !(s.inputs[i] == run.input_desc(i))) return false;
    if (!is_key(compiled_, i, s.inputs[i])) continue;
    const Tensor& t = *run.from[i];
    if (s.values[i].size() != t.size_bytes()) return false;
    if (t.size_bytes() > 0 && std::memcmp(s.values[i].data(), t.buffer().address(), t.size_bytes()) != 0) return false;
  }
  return std::equal(s.output_slots.begin(), s.output_slots.end(), run.output_slots.span().begin()) &&
         std::equal(s.skipped.begin(), s.skipped.end(), run.skipped.begin(), run.skipped.end()) &&
         s.shares_inputs == run.shares_inputs && s.shares_outputs == run.shares_outputs;
}

PreparedPlanPtr PlanCache::find(const RunTensors& run) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (!matches(*plans_[i]->plan, run)) continue;
      if (i > 0) {
        plans_[i]->came_back = true;
        std::rotate(plans_.begin(), plans_.begin() + static_cast<std::ptrdiff_t>(i),
                    plans_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
      return plans_[0];
    }
  }
  return prepare(run);
}

// Takes another session's plan for the call, makes one, or makes one over.
PreparedPlanPtr PlanCache::prepare(const RunTensors& run) {
  SharedPlans& shared = *compiled_.plans;
  if (std::shared_ptr<Plan> found = shared.find([&](const Plan& p) { return matches(p, run); })) return remember(std::move(found));
  const std::uint64_t begin_ns = os::now_ns();
  const Signature signature = signature_of(run);
  std::shared_ptr<Plan> plan;
  bool made_over = false;
  if (std::shared_ptr<Plan> old = take_stale(signature)) {
    plan = replan(compiled_, std::move(old), signature);
    made_over = plan != nullptr;
  }
  if (plan == nullptr) plan = make_plan(compiled_, signature);
  if (std::shared_ptr<Plan> smaller = fits_beside(*plan) ? nullptr : make_smaller(*plan)) plan = std::move(smaller);
  log(*plan, os::now_ns() - begin_ns, made_over);
  shared.add(plan);
  return remember(std::move(plan));
}

// Returns whether the arena of a run fits on the devices beside the memory in use there. Idle arenas count as free memory.
bool PlanCache::fits_beside(const Plan& plan) const {
  const std::uint64_t idle = arenas_.stats().idle_bytes;
  for (std::size_t slot = 0; slot < plan.arena_bytes.size(); ++slot) {
    const Pool& pool = compiled_.devices[slot]->pool();
    if (pool.is_limited() && plan.arena_bytes[slot] > pool.left() + idle) return false;
  }
  return true;
}

// The plan with its steps in an order that takes less; null where there is none.
std::shared_ptr<Plan> PlanCache::make_smaller(const Plan& plan) const {
  if (plan.is_small || plan.before != nullptr) return nullptr;
  std::shared_ptr<Plan> smaller = make_plan(compiled_, *plan.signature, true);
  const auto total = [](const Plan& p) { return std::accumulate(p.arena_bytes.begin(), p.arena_bytes.end(), std::uint64_t{0}); };
  const std::uint64_t before = total(plan), after = total(*smaller);
  if (after >= before) return nullptr;
  LogEvent(compiled_.model->runtime->log(), EVN_LOG_INFO, "memory.spared")
      .device(compiled_.devices[0]->name().c_str())
      .field("step", "order")
      .field("file", compiled_.model->file_name.c_str())
      .field("bytes", before - after)
      .field("bytes_needed", before)
      .write("a run of %s needs %llu bytes of intermediate values: another order of its steps, %llu bytes less",
             compiled_.model->shown_name(), static_cast<unsigned long long>(before),
             static_cast<unsigned long long>(before - after));
  return smaller;
}

// The plan with another order of its steps, in the place of one for which a device has refused memory.
PreparedPlanPtr PlanCache::find_smaller(const Plan& refused) {
  std::shared_ptr<Plan> plan = make_smaller(refused);
  if (plan == nullptr) return nullptr;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    std::erase_if(plans_, [&](const PreparedPlanPtr& p) { return p->plan.get() == &refused; });
  }
  return remember(std::move(plan));
}

// A plan to be made over, when there are some: shapes that never come again (a cache that grows) would fill the cache of plans with
// what costs time to make and is never used. The latest goes first, whose memory is the nearest, and where many shapes come in
// turns the others stay. One that came back is left where it is, and so is one that gives other outputs, or elsewhere.
std::shared_ptr<Plan> PlanCache::take_stale(const Signature& signature) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (plans_.size() < kFewPlans) return nullptr;
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if ((*it)->came_back || it->use_count() != 1 || (*it)->plan.use_count() != 1) continue;
    const Signature& old = *(*it)->plan->signature;
    if (old.skipped != signature.skipped || old.output_slots != signature.output_slots) continue;
    if (old.shares_inputs != signature.shares_inputs || old.shares_outputs != signature.shares_outputs) continue;
    if (!compiled_.plans->withdraw((*it)->plan)) continue;
    // Copied, not moved: the count of the last run that used it was read without an order, which the end of `PreparedPlan` brings.
    std::shared_ptr<Plan> plan = (*it)->plan;
    plans_.erase(it);
    return plan;
  }
  return nullptr;
}

PreparedPlanPtr PlanCache::remember(std::shared_ptr<Plan> plan) {
  auto prepared = std::make_shared<PreparedPlan>();
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
PreparedPlanPtr PlanCache::find_next(PreparedPlan& prepared, const Execution& done, std::span<const TensorDesc> made) {
  const Plan& plan = *prepared.plan;
  std::vector<const void*> fetched;
  std::vector<std::size_t> sizes;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < plan.fetch.size(); ++i) {
    fetched.push_back(done.address(plan.fetch_buffers[i]));
    sizes.push_back(plan.buffers[plan.fetch_buffers[i]].buffer.size);
    bytes += sizes[i];
    if (compiled_.graph().values[plan.fetch[i]].dtype == DType::kString) bytes = kMaxKeyBytes + 1;
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
    const auto it =
        std::find_if(prepared.next.begin(), prepared.next.end(), [&](const PreparedPlanPtr& p) { return fits(*p->plan); });
    if (it != prepared.next.end()) {
      std::rotate(prepared.next.begin(), it, it + 1);
      return prepared.next[0];
    }
  }
  auto next = std::make_shared<PreparedPlan>();
  const std::uint64_t begin_ns = os::now_ns();
  next->plan = continue_plan(compiled_, prepared.plan, fetched, made);
  log(*next->plan, os::now_ns() - begin_ns, false);
  const std::lock_guard<Mutex> lock(mutex_);
  if (bytes > kMaxKeyBytes) prepared.next.clear();
  prepared.next.insert(prepared.next.begin(), next);
  if (prepared.next.size() > kMaxNext) prepared.next.pop_back();
  return next;
}

namespace {

void count_plans(const std::vector<PreparedPlanPtr>& plans, std::uint64_t* count, std::uint64_t* bytes) {
  for (const PreparedPlanPtr& p : plans) {
    ++*count;
    *bytes += held_bytes(*p->plan);
    count_plans(p->next, count, bytes);
  }
}

}  // namespace

void PlanCache::count(std::uint64_t* plans, std::uint64_t* bytes) const {
  const std::lock_guard<Mutex> lock(mutex_);
  count_plans(plans_, plans, bytes);
}

std::vector<std::shared_ptr<const Plan>> PlanCache::latest() const {
  std::vector<std::shared_ptr<const Plan>> chain;
  const std::lock_guard<Mutex> lock(mutex_);
  for (PreparedPlanPtr p = plans_.empty() ? nullptr : plans_[0]; p != nullptr; p = p->next.empty() ? nullptr : p->next[0])
    chain.push_back(p->plan);
  return chain;
}

void PlanCache::log(const Plan& plan, std::uint64_t duration_ns, bool made_over) const {
  const LogSink& log = compiled_.model->runtime->log();
  if (!log.wants(EVN_LOG_DEBUG)) return;
  std::string shapes;
  for (const TensorDesc& desc : plan.signature->inputs) {
    if (shapes.size() < 256) shapes += (shapes.empty() ? "" : " ") + desc.shape.to_string();
  }
  std::uint64_t arena_bytes = 0;
  for (const std::size_t bytes : plan.arena_bytes) arena_bytes += bytes;
  LogEvent(log, EVN_LOG_DEBUG, "plan.created")
      .field("file", compiled_.model->file_name.c_str())
      .field("shapes", shapes.c_str())
      .field("part", plan.subplan)
      .field("steps", plan.steps.size())
      .field("arena_bytes", arena_bytes)
      .field("made_over", made_over ? 1 : 0)
      .field("duration_ns", duration_ns)
      .write("planned %s for %s: %zu steps, %llu bytes of arenas, %llu us", compiled_.model->shown_name(), shapes.c_str(),
             plan.steps.size(), static_cast<unsigned long long>(arena_bytes), static_cast<unsigned long long>(duration_ns / 1000));
}

}  // namespace evn
