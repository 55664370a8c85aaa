#include "runtime/request/session_requests.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/error.h"
#include "base/lent_core.h"
#include "base/scheduling_constants.h"
#include "runtime/request/request.h"

namespace evn {
namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local const SessionRequests::InCallback* t_callback = nullptr;

}  // namespace

bool SessionRequests::comes_before(const Request& a, const Request& b) {
  const std::uint64_t x = a.run_.stop.deadline_ns - 1;  // no deadline becomes the latest
  const std::uint64_t y = b.run_.stop.deadline_ns - 1;
  return x != y ? x < y : a.number_ < b.number_;
}

void SessionRequests::push(RequestPtr request) {
  Queue& queue = queue_of(request->run_.priority);
  EVN_CHECK(queue.insert(std::move(request)).second);
  ++waiting_;
}

int SessionRequests::top_class(std::uint64_t now_ns, std::int64_t* urgency) const {
  int best = -1;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].empty()) continue;
    const std::uint64_t begin = (*classes_[c].begin())->submitted_ns_;
    const auto age = static_cast<std::int64_t>(now_ns > begin ? now_ns - begin : 0);
    const std::int64_t u = static_cast<std::int64_t>(c) * static_cast<std::int64_t>(scheduling::kAgeOfPriorityNs) + age;
    if (best >= 0 && u < *urgency) continue;
    best = static_cast<int>(c);
    *urgency = u;
  }
  return best;
}

std::int64_t SessionRequests::urgency(std::uint64_t now_ns) const {
  std::int64_t u = INT64_MIN;
  if (most_running_ == 0 || running_ < most_running_) top_class(now_ns, &u);
  return u;
}

std::int32_t SessionRequests::top_priority(std::uint64_t now_ns) const {
  std::int64_t u = 0;
  return static_cast<std::int32_t>(top_class(now_ns, &u)) - kMostPriority;
}

RequestPtr SessionRequests::pop(std::uint64_t now_ns, bool prefer_feasible) {
  std::int64_t u = 0;
  Queue& queue = classes_[static_cast<std::size_t>(top_class(now_ns, &u))];
  ++running_;
  return take(queue, prefer_feasible ? first_feasible(queue, now_ns) : queue.begin());
}

SessionRequests::Queue::iterator SessionRequests::first_feasible(const Queue& queue, std::uint64_t now_ns) const {
  int checks = 0;
  for (auto it = queue.begin(); it != queue.end() && checks < scheduling::kMaxDeadlineChecks; ++it, ++checks) {
    const std::uint64_t deadline = (*it)->run_.stop.deadline_ns;
    if (deadline == 0) break;
    if (deadline >= now_ns + run_times_[(*it)->size_class()].load(std::memory_order_relaxed)) return it;
  }
  return queue.begin();
}

// The estimate falls to a shorter run at once. A longer one, of at most twice the estimate, raises it by a share of the difference.
// The time of a run that was cut off is a lower bound.
void SessionRequests::add_run_time(std::size_t size_class, std::uint64_t duration_ns, bool completed) noexcept {
  std::atomic<std::uint64_t>& time = run_times_[size_class];
  const std::uint64_t before = time.load(std::memory_order_relaxed);
  if (before != 0 && duration_ns > before) {
    time.store(before + (std::min(duration_ns, 2 * before) - before) / scheduling::kMeanShare, std::memory_order_relaxed);
  } else if (completed || before == 0) {
    time.store(duration_ns, std::memory_order_relaxed);
  }
}

std::uint64_t SessionRequests::in_flight() {
  const std::lock_guard<Mutex> lock(mutex_);
  return entered_;
}

bool SessionRequests::remove(const Request* request) noexcept {
  Queue& queue = queue_of(request->run_.priority);
  const auto it = queue.find(request);
  if (it == queue.end() || it->get() != request) return false;
  queue.erase(it);
  --waiting_;
  return true;
}

void SessionRequests::find_stopped(std::vector<RequestPtr>* out) const {
  for (const Queue& queue : classes_) {
    for (const RequestPtr& r : queue) {
      if (!r->has_ended() && Cancel{r->run_.stop}.stop()) out->push_back(r);
    }
  }
}

void SessionRequests::look_at_stops(std::uint64_t* deadline_ns, bool* tokens) const {
  for (const Queue& queue : classes_) {
    for (const RequestPtr& r : queue) {
      if (r->has_ended()) continue;
      if (r->run_.stop.deadline_ns != 0) *deadline_ns = std::min(*deadline_ns, r->run_.stop.deadline_ns);
      *tokens = *tokens || r->run_.stop.requested != nullptr;
    }
  }
}

void SessionRequests::require_not_forked() const {
  if (used_in_.load(std::memory_order_relaxed) == os::fork_generation() || under_way_.load(std::memory_order_relaxed) == 0) return;
  fail(EVN_ERROR_FORKED, "requests of the session were under way when the process forked");
}

// Threads that are no more may have been about to tell of the ends of requests, and to note that.
void SessionRequests::begin_in_child() {
  if (used_in_.load(std::memory_order_relaxed) == os::fork_generation()) return;
  require_not_forked();
  ::new (static_cast<void*>(&mutex_)) Mutex;
  entered_ = 0;
  awaited_ = 0;
  running_ = 0;
  waiting_ = 0;
  for (Queue& queue : classes_) queue.clear();
  next = nullptr;
  listed = false;
  used_in_.store(os::fork_generation(), std::memory_order_relaxed);
}

void SessionRequests::enter() {
  const std::lock_guard<Mutex> lock(mutex_);
  ++entered_;
  under_way_.fetch_add(1, std::memory_order_relaxed);
}

void SessionRequests::leave(std::uint32_t made_in) noexcept {
  const LockIfAlive lock(mutex_);
  if (made_in != used_in_.load(std::memory_order_relaxed)) return;  // begin_in_child has been there
  if (--entered_ == 0) changed_.notify_all();
}

bool SessionRequests::wait_for_all(std::uint64_t timeout_ns) {
  require_not_forked();
  if (used_in_.load(std::memory_order_relaxed) != os::fork_generation()) return true;  // who still had to tell is not there
  awaited_.fetch_add(1, std::memory_order_relaxed);
  const LentCore lent;
  struct Awaited {
    std::atomic<int>& count;
    ~Awaited() { count.fetch_sub(1, std::memory_order_relaxed); }
  } const awaited{awaited_};
  std::unique_lock<Mutex> lock(mutex_);
  const auto none = [this] { return entered_ == 0; };
  constexpr std::uint64_t kForever = std::uint64_t{1} << 62;
  if (timeout_ns < kForever) return changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), none);
  changed_.wait(lock, none);
  return true;
}

SessionRequests::InCallback::InCallback(const SessionRequests& of) noexcept : of_(&of), outer_(t_callback) { t_callback = this; }
SessionRequests::InCallback::~InCallback() { t_callback = outer_; }

bool SessionRequests::in_callback() const noexcept {
  for (const InCallback* c = t_callback; c != nullptr; c = c->outer_) {
    if (c->of_ == this) return true;
  }
  return false;
}

bool SessionRequests::in_any_callback() noexcept { return t_callback != nullptr; }

}  // namespace evn
