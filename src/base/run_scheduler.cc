#include "base/run_scheduler.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/lent_core.h"
#include "base/os/os.h"

namespace evn {
namespace {

// The runs of the calling thread that have cores, at most one of each scheduler. What an operator of such a run runs itself
// computes on the same core: it would otherwise wait for one that only its own end can free.
struct HeldCore {
  const RunScheduler* scheduler;
  ScheduledRun* run;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local HeldCore t_held[LentCore::kMostSchedulers] = {};

bool holds_core(const RunScheduler* scheduler) {
  return std::any_of(std::begin(t_held), std::end(t_held), [&](const HeldCore& h) { return h.scheduler == scheduler; });
}

// The entry that has `run`; with nullptr, a free one. nullptr: there is none.
HeldCore* find_held(const ScheduledRun* run) {
  HeldCore* const h = std::find_if(std::begin(t_held), std::end(t_held), [&](const HeldCore& e) { return e.run == run; });
  return h != std::end(t_held) ? h : nullptr;
}

void note_core(const RunScheduler* scheduler, ScheduledRun* run) {
  if (HeldCore* const h = find_held(nullptr)) *h = {scheduler, run};
}

void forget_core(const ScheduledRun* run) {
  if (HeldCore* const h = find_held(run)) *h = {};
}

constexpr std::uint64_t kTokenLookNs = 1'000'000;  // nobody wakes a run whose token is requested: a handler of a signal may do that

}  // namespace

void RunScheduler::List::push(ScheduledRun* run) {
  run->before_ = last;
  run->after_ = nullptr;
  (last != nullptr ? last->after_ : first) = run;
  last = run;
}

void RunScheduler::List::remove(ScheduledRun* run) {
  (run->before_ != nullptr ? run->before_->after_ : first) = run->after_;
  (run->after_ != nullptr ? run->after_->before_ : last) = run->before_;
}

// By what was asked for, not by who came first.
bool ScheduledRun::is_more_urgent_than(const ScheduledRun& other) const {
  if (urgency_.priority != other.urgency_.priority) return urgency_.priority > other.urgency_.priority;
  return urgency_.deadline_ns - 1 < other.urgency_.deadline_ns - 1;  // 0, no deadline, becomes the latest
}

// Whether nothing but the number of cores keeps the run from computing.
bool RunScheduler::has_room_for(const ScheduledRun& run) const {
  if (run.group_ != nullptr && run.group_->is_full()) return false;
  for (const ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (!r->boosted_ && r->urgency_.priority > run.urgency_.priority) return false;
  }
  return true;
}

ScheduledRun* RunScheduler::most_urgent_waiting() const {
  ScheduledRun* best = nullptr;
  for (ScheduledRun* w = waiting_.first; w != nullptr; w = w->after_) {
    if (!has_room_for(*w)) continue;
    if (best == nullptr || w->is_more_urgent_than(*best) || (!best->is_more_urgent_than(*w) && w->arrival_ < best->arrival_))
      best = w;
  }
  return best;
}

// Whether a run that has just come may take a free core before those that wait.
bool RunScheduler::may_pass(const ScheduledRun& run) const {
  const ScheduledRun* const first = most_urgent_waiting();
  if (first == nullptr || run.is_more_urgent_than(*first)) return true;
  return !first->is_more_urgent_than(run) && os::now_ns() - first->wait_begin_ns_ < kMostPassedNs;
}

bool RunScheduler::should_pause(const ScheduledRun& run) const {
  for (const ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (!r->boosted_ && r->urgency_.priority > run.urgency_.priority) return true;
  }
  for (const ScheduledRun* w = waiting_.first; w != nullptr; w = w->after_) {
    if (w->is_more_urgent_than(run) && has_room_for(*w)) return true;
  }
  return false;
}

// Runs that are less urgent make way: all of lower priorities; of the same one, the one whose deadline is latest.
void RunScheduler::ask_for_core(const ScheduledRun& run) {
  ScheduledRun* latest = nullptr;
  for (ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (r == &run || !run.is_more_urgent_than(*r)) continue;
    if (r->urgency_.priority < run.urgency_.priority) r->must_pause_.store(true, std::memory_order_relaxed);
    if (latest == nullptr || latest->is_more_urgent_than(*r)) latest = r;
  }
  if (latest != nullptr && running_count_.load(std::memory_order_relaxed) >= cores_)
    latest->must_pause_.store(true, std::memory_order_relaxed);
}

void RunScheduler::start(ScheduledRun& run) {
  run.state_ = ScheduledRun::State::kRunning;
  running_.push(&run);
  running_count_.fetch_add(1, std::memory_order_relaxed);
  if (run.group_ != nullptr) ++run.group_->running_;
  if (!run.boosted_) ask_for_core(run);
}

void RunScheduler::stop(ScheduledRun& run) {
  run.state_ = ScheduledRun::State::kOutside;
  run.boosted_ = false;
  run.must_pause_.store(false, std::memory_order_relaxed);
  running_.remove(&run);
  running_count_.fetch_sub(1, std::memory_order_relaxed);
  if (run.group_ != nullptr) --run.group_->running_;
}

// Gives free cores to those that wait. One that has not waited long is only woken, and takes the core if it is still free then.
void RunScheduler::hand_out_cores() {
  if (waiting_.first == nullptr) return;
  const std::uint64_t now = os::now_ns();
  for (ScheduledRun *w = waiting_.first, *next; w != nullptr; w = next) {
    next = w->after_;
    const bool starved = now - w->wait_begin_ns_ >= kStarvedNs;
    if (!starved || running_count_.load(std::memory_order_relaxed) >= cores_) continue;
    if (w->group_ != nullptr && w->group_->is_full()) continue;
    waiting_.remove(w);
    w->boosted_ = true;
    w->boost_end_ns_ = now + kBoostNs;
    start(*w);
    w->must_pause_.store(true, std::memory_order_relaxed);  // to look at the time
    w->granted_.notify_one();
  }
  while (running_count_.load(std::memory_order_relaxed) < cores_) {
    ScheduledRun* const w = most_urgent_waiting();
    if (w == nullptr) return;
    if (now - w->wait_begin_ns_ < kMostPassedNs) {
      if (!w->woken_) w->granted_.notify_one();
      w->woken_ = true;
      return;
    }
    waiting_.remove(w);
    start(*w);
    w->granted_.notify_one();
  }
}

// The run is in the list of those that wait. False, and it is in none, when `cancel` says stop.
bool RunScheduler::wait_for_core(std::unique_lock<std::mutex>& lock, ScheduledRun& run, const Cancel& cancel) noexcept {
  run.woken_ = false;
  while (run.state_ == ScheduledRun::State::kWaiting) {
    if (running_count_.load(std::memory_order_relaxed) < cores_ && most_urgent_waiting() == &run) {
      waiting_.remove(&run);
      start(run);
      hand_out_cores();  // one was woken at a time
      break;
    }
    run.woken_ = false;
    if (cancel.stop()) {
      waiting_.remove(&run);
      run.state_ = ScheduledRun::State::kOutside;
      hand_out_cores();
      break;
    }
    std::uint64_t look = cancel.requested != nullptr ? kTokenLookNs : UINT64_MAX;
    if (cancel.deadline_ns != 0) {
      const std::uint64_t now = deadline_clock_ns();
      look = std::min(look, cancel.deadline_ns > now ? cancel.deadline_ns - now : 1);
    }
    if (look == UINT64_MAX) {
      run.granted_.wait(lock);
    } else {
      run.granted_.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(look, 1'000'000'000)));
    }
  }
  run.waited_ns_ += os::now_ns() - run.wait_begin_ns_;
  return run.state_ == ScheduledRun::State::kRunning;
}

// Whether the calling thread, whose run this is, has been woken on a core on which another run computes: the system puts it there
// while the core that has become free is still busy with the end of a run, and may leave it there for milliseconds.
bool RunScheduler::shares_core(const ScheduledRun& run) const {
  const int core = os::current_core();
  if (core < 0) return false;
  for (const ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (r != &run && r->core_.load(std::memory_order_relaxed) == core) return true;
  }
  return false;
}

void RunScheduler::enter(ScheduledRun& run, const Cancel& cancel) {
  if (cores_ == 0 || mark_.in_child() || holds_core(this)) return;
  std::unique_lock<std::mutex> lock(mutex_);
  run.arrival_ = ++arrivals_;
  if (running_count_.load(std::memory_order_relaxed) < cores_ && has_room_for(run) && (waiting_.first == nullptr || may_pass(run)))
    return run.note_core(), note_core(this, &run), start(run);
  run.wait_begin_ns_ = os::now_ns();
  run.state_ = ScheduledRun::State::kWaiting;
  waiting_.push(&run);
  if (has_room_for(run)) ask_for_core(run);
  if (!wait_for_core(lock, run, cancel)) cancel.fail();
  const bool shares = shares_core(run);
  lock.unlock();
  if (shares) os::leave_core();
  run.note_core();
  note_core(this, &run);
}

void RunScheduler::leave(ScheduledRun& run) noexcept {
  forget_core(&run);
  if (mark_.in_child()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  stop(run);
  run.core_.store(-1, std::memory_order_relaxed);
  hand_out_cores();
}

void RunScheduler::pause(ScheduledRun& run, const Cancel& cancel) noexcept {
  if (run.state_ != ScheduledRun::State::kRunning || mark_.in_child()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  const std::uint64_t now = os::now_ns();
  if (run.boosted_ && now < run.boost_end_ns_) return;
  run.boosted_ = false;
  if (!should_pause(run)) {
    run.must_pause_.store(false, std::memory_order_relaxed);
    return;
  }
  stop(run);
  run.wait_begin_ns_ = now;
  run.state_ = ScheduledRun::State::kWaiting;
  waiting_.push(&run);
  if (ScheduledRun* const w = most_urgent_waiting();
      w != nullptr && w != &run && running_count_.load(std::memory_order_relaxed) < cores_) {
    waiting_.remove(w);  // it need not be woken to ask
    start(*w);
    w->granted_.notify_one();
  }
  hand_out_cores();
  if (!wait_for_core(lock, run, cancel)) forget_core(&run);
}

LentCore::LentCore() noexcept {
  for (int i = 0; i < kMostSchedulers; ++i) runs_[i] = t_held[i].run;
  for (ScheduledRun* run : runs_) {
    if (run != nullptr) run->leave();
  }
}

LentCore::~LentCore() {
  for (ScheduledRun* run : runs_) {
    try {
      if (run != nullptr) run->enter();
    } catch (const Error&) {  // it has been stopped, and ends without a core at its next look
    }
  }
}

}  // namespace evn
