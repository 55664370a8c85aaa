#include "base/run_scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "base/os/futex.h"
#include "base/os/os.h"
#include "base/run_thread.h"

namespace evn {
namespace {

void note_return(RunThread::Turn& turn, const RunScheduler* to, std::uint64_t now) {
  if (turn.scheduler == to && turn.left_ns == 0) return;
  const bool quick = turn.scheduler == to && now - turn.left_ns <= scheduling::kQuickReturnNs;
  turn.quick_returns = quick ? std::min(turn.quick_returns + 1, scheduling::kQuickReturns) : 0;
}

void note_leave(RunThread::Turn& turn, const RunScheduler* from, std::uint64_t now) {
  if (turn.scheduler != from) turn = {.scheduler = from, .begin_ns = 0, .left_ns = 0, .quick_returns = 0};
  turn.left_ns = now;
}

}  // namespace

[[gnu::tls_model("initial-exec")]] constinit thread_local RunThread RunThread::t_current = {};

// A thread may have ended by the time it is woken: then nobody sleeps on the word any more, or somebody who looks again.
void RunScheduler::Lock::unlock() noexcept {
  if (lock_.owns_lock()) lock_.unlock();
  for (int i = 0; i < count_; ++i) os::futex_wake_one(words_[i]);
  count_ = 0;
}

void RunScheduler::Lock::wake(ScheduledRun& run) {
  run.signal_.store(run.state_ == ScheduledRun::State::kRunning ? ScheduledRun::kStarted : ScheduledRun::kLook,
                    std::memory_order_release);
  const std::uint32_t* const word = os::futex_word(run.signal_);
  if (count_ == scheduling::kMaxDeferredWakes) return os::futex_wake_one(word);
  words_[count_++] = word;
}

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
bool RunScheduler::may_pass(const ScheduledRun& run, std::uint64_t now) const {
  const ScheduledRun* const first = most_urgent_waiting();
  if (first == nullptr || run.is_more_urgent_than(*first)) return true;
  if (first->is_more_urgent_than(run)) return false;
  const RunThread::Turn& turn = RunThread::current().turn;
  if (turn.scheduler == this && turn.quick_returns == scheduling::kQuickReturns) return now - turn.begin_ns < scheduling::kTurnNs;
  return now - first->wait_begin_ns_ < scheduling::kMaxOvertakenNs;
}

// Whether the calling thread, whose run has just ended, is expected back before its turn is over, and nobody waits who should not
// wait for that.
bool RunScheduler::may_keep_core(const ScheduledRun& run, std::uint64_t now) const {
  const RunThread::Turn& turn = RunThread::current().turn;
  if (turn.scheduler != this || turn.quick_returns < scheduling::kQuickReturns || now - turn.begin_ns >= scheduling::kTurnNs)
    return false;
  const ScheduledRun* const first = most_urgent_waiting();
  return first != nullptr && !first->is_more_urgent_than(run) && now - first->wait_begin_ns_ < scheduling::kStarvedNs;
}

// Whether one of so many cores is free because a thread that was expected back has not come.
bool RunScheduler::has_abandoned_core(int cores, std::uint64_t now) const {
  return running_count_.load(std::memory_order_relaxed) < cores && now - kept_ns_ > scheduling::kQuickReturnNs;
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

// Runs that are less urgent make way: all of lower priorities, and whether there are any is returned; of the same one, the one
// whose deadline is latest.
bool RunScheduler::ask_for_core(const ScheduledRun& run) {
  ScheduledRun* latest = nullptr;
  bool asks = false;
  for (ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (r == &run || !run.is_more_urgent_than(*r)) continue;
    if (r->urgency_.priority < run.urgency_.priority) {
      r->must_pause_.store(true, std::memory_order_relaxed);
      asks = true;
    }
    if (latest == nullptr || latest->is_more_urgent_than(*r)) latest = r;
  }
  if (latest != nullptr && running_count_.load(std::memory_order_relaxed) >= cores_)
    latest->must_pause_.store(true, std::memory_order_relaxed);
  return asks;
}

void RunScheduler::start(ScheduledRun& run) {
  run.state_ = ScheduledRun::State::kRunning;
  run.must_pause_.store(false, std::memory_order_relaxed);
  run.begin_ns_ = os::now_ns();
  running_.push(&run);
  running_count_.fetch_add(1, std::memory_order_relaxed);
  if (run.group_ != nullptr) ++run.group_->running_;
  run.expects_cores_ = !run.boosted_ && ask_for_core(run);
}

void RunScheduler::stop(ScheduledRun& run) {
  run.state_ = ScheduledRun::State::kOutside;
  run.boosted_ = false;
  run.must_pause_.store(false, std::memory_order_relaxed);
  running_.remove(&run);
  running_count_.fetch_sub(1, std::memory_order_seq_cst);
  if (run.group_ != nullptr) --run.group_->running_;
}

// Gives free cores to those that wait. Unless that is to be `at_once`, one that has not waited long is only woken, and takes the
// core if it is still free then.
void RunScheduler::hand_out_cores(Lock& lock, bool at_once) {
  const std::uint64_t now = os::now_ns();
  if (lingers_until_ns_ <= now) end_linger(true);
  if (waiting_.first == nullptr) return;
  for (ScheduledRun *w = waiting_.first, *next; w != nullptr; w = next) {
    next = w->after_;
    const bool starved = now - w->wait_begin_ns_ >= scheduling::kStarvedNs;
    if (!starved || running_count_.load(std::memory_order_relaxed) >= cores_) continue;
    if (w->group_ != nullptr && w->group_->is_full()) continue;
    waiting_.remove(w);
    w->boosted_ = true;
    w->boost_end_ns_ = now + scheduling::kBoostNs;
    start(*w);
    w->must_pause_.store(true, std::memory_order_relaxed);  // to look at the time
    lock.wake(*w);
  }
  while (running_count_.load(std::memory_order_relaxed) < cores_) {
    ScheduledRun* const w = most_urgent_waiting();
    if (w == nullptr) return;
    if (!at_once && now - w->wait_begin_ns_ < scheduling::kMaxOvertakenNs) {
      if (!w->woken_) lock.wake(*w);
      w->woken_ = true;
      return;
    }
    waiting_.remove(w);
    start(*w);
    lock.wake(*w);
  }
}

// The run is in the list of those that wait. False, and it is in none, when `cancel` says stop. The lock may be free at the end.
bool RunScheduler::wait_for_core(Lock& lock, ScheduledRun& run, const Cancel& cancel) noexcept {
  run.woken_ = false;
  std::uint64_t look_after = scheduling::kFirstPollNs;
  while (run.state_ == ScheduledRun::State::kWaiting) {
    end_linger(false);
    if (running_count_.load(std::memory_order_relaxed) < cores_ && most_urgent_waiting() == &run) {
      waiting_.remove(&run);
      start(run);
      hand_out_cores(lock);  // one was woken at a time
      break;
    }
    // A core may be free that more urgent runs do not leave to this one.
    if (look_after == scheduling::kStarvedNs && os::now_ns() - run.wait_begin_ns_ >= scheduling::kStarvedNs) hand_out_cores(lock);
    if (run.state_ != ScheduledRun::State::kWaiting) break;
    run.woken_ = false;
    if (cancel.stop()) {
      waiting_.remove(&run);
      run.state_ = ScheduledRun::State::kOutside;
      hand_out_cores(lock);
      break;
    }
    std::uint64_t look = cancel.requested != nullptr ? scheduling::kFirstPollNs : look_after;  // a token wakes nobody
    if (cancel.deadline_ns != 0) {
      const std::uint64_t now = deadline_clock_ns();
      look = std::min(look, cancel.deadline_ns > now ? cancel.deadline_ns - now : 1);
    }
    run.signal_.store(ScheduledRun::kNone, std::memory_order_relaxed);
    lock.unlock();
    os::futex_wait_for(os::futex_word(run.signal_), ScheduledRun::kNone, look);
    if (run.signal_.load(std::memory_order_acquire) == ScheduledRun::kStarted) break;
    lock.lock();
    look_after = std::min(look_after * 2, scheduling::kStarvedNs);
  }
  run.waited_ns_ += os::now_ns() - run.wait_begin_ns_;
  return run.state_ == ScheduledRun::State::kRunning;
}

// Whether the calling thread, whose run this is, has been woken on a core on which another run computes: the system puts it there
// while the core that has become free is still busy with the end of a run, and may leave it there for milliseconds.
bool RunScheduler::shares_core(const ScheduledRun& run) const {
  const int core = os::current_core();
  if (core < 0) return false;
  if (lingers_until_ns_ != 0 && core == lingers_on_) return true;
  for (const ScheduledRun* r = running_.first; r != nullptr; r = r->after_) {
    if (r != &run && r->core_.load(std::memory_order_relaxed) == core) return true;
  }
  return false;
}

// For a run that has waited: where its thread has been woken on another's core, it goes to a free one.
void RunScheduler::settle(ScheduledRun& run) {
  Lock lock(mutex_);
  const bool shares = shares_core(run);
  lock.unlock();
  if (shares) os::leave_core();
  run.note_core();
}

// Whether the thread of a run that has just ended keeps its core for a while; other free ones are given to those that wait. Some
// run that computes looks at the time.
bool RunScheduler::linger(const ScheduledRun& run, Lock& lock, std::uint64_t now) {
  const std::uint64_t share = (now - run.begin_ns_) / scheduling::kLingerShare;
  const bool is_short = share < scheduling::kMinLingerNs && waiting_.first->urgency_.priority >= run.urgency_.priority;
  if (is_short || lingers_until_ns_ != 0) return false;  // without a look at all that wait
  const ScheduledRun* const first = most_urgent_waiting();
  if (first == nullptr || first->urgency_.priority > run.urgency_.priority) return false;
  RunThread::Returns& back = RunThread::current().returns;
  std::uint64_t length = scheduling::kLingerNs;
  if (first->urgency_.priority == run.urgency_.priority) {
    length = std::min(length, share);
    if (length < scheduling::kMinLingerNs || now - first->wait_begin_ns_ >= scheduling::kStarvedNs) return false;
    if (back.scheduler != this) back = {};
    if (back.skip > 0) return --back.skip, false;
  }
  running_count_.fetch_add(1, std::memory_order_relaxed);
  hand_out_cores(lock, true);
  if (running_.first == nullptr) {
    running_count_.fetch_sub(1, std::memory_order_seq_cst);
    return false;
  }
  running_.first->must_pause_.store(true, std::memory_order_relaxed);
  lingers_until_ns_ = now + length;
  lingers_on_ = os::current_core();
  back.scheduler = this;
  back.linger = ++lingers_;
  return true;
}

// Takes the core of a thread that lingers, unless its time is not over. False: no core has become free.
bool RunScheduler::end_linger(bool at_once) {
  if (lingers_until_ns_ == 0 || (!at_once && os::now_ns() < lingers_until_ns_)) return false;
  lingers_until_ns_ = 0;
  running_count_.fetch_sub(1, std::memory_order_seq_cst);
  return true;
}

void RunScheduler::enter(ScheduledRun& run, const Cancel& cancel) {
  if (cores_ == 0 || mark_.in_child() || RunThread::current().holds_core_of(this)) return;
  Lock lock(mutex_);
  run.arrival_ = ++arrivals_;
  RunThread& thread = RunThread::current();
  const bool has_lingered = thread.returns.scheduler == this && thread.returns.linger != 0;
  const bool returns = has_lingered && thread.returns.linger == lingers_ && end_linger(true);
  if (has_lingered) thread.returns.note(returns);
  const bool is_contended = waiting_.first != nullptr;
  const std::uint64_t now = is_contended ? os::now_ns() : 0;
  if (is_contended) note_return(thread.turn, this, now);
  if (running_count_.load(std::memory_order_relaxed) < cores_ && has_room_for(run) && (!is_contended || may_pass(run, now)))
    return run.note_core(), thread.hold(this, &run), start(run);
  run.wait_begin_ns_ = is_contended ? now : os::now_ns();
  run.state_ = ScheduledRun::State::kWaiting;
  waiting_.push(&run);
  if (has_room_for(run)) ask_for_core(run);
  if (returns || has_abandoned_core(cores_, run.wait_begin_ns_)) hand_out_cores(lock, returns);
  if (!wait_for_core(lock, run, cancel)) cancel.fail();
  thread.turn = {.scheduler = this, .begin_ns = os::now_ns(), .left_ns = 0, .quick_returns = thread.turn.quick_returns};
  lock.unlock();
  settle(run);
  thread.hold(this, &run);
}

void RunScheduler::leave(ScheduledRun& run) noexcept {
  RunThread::current().release(&run);
  if (mark_.in_child()) return;
  Lock lock(mutex_);
  stop(run);
  run.core_.store(-1, std::memory_order_relaxed);
  if (waiting_.first == nullptr) return;
  const std::uint64_t now = os::now_ns();
  RunThread::Turn& turn = RunThread::current().turn;
  note_leave(turn, this, now);
  if (linger(run, lock, now)) return;
  if (!has_abandoned_core(cores_ - 1, now) && may_keep_core(run, now)) {
    kept_ns_ = now;
    return;
  }
  const bool is_quick = turn.quick_returns == scheduling::kQuickReturns;
  if (is_quick) turn.left_ns = 0;
  hand_out_cores(lock, is_quick);
}

void RunScheduler::pause(ScheduledRun& run, const Cancel& cancel) noexcept {
  if (run.state_ != ScheduledRun::State::kRunning || mark_.in_child()) return;
  Lock lock(mutex_);
  const std::uint64_t now = os::now_ns();
  if (run.boosted_ && now < run.boost_end_ns_) return;
  run.boosted_ = false;
  if (lingers_until_ns_ != 0 && now >= lingers_until_ns_) hand_out_cores(lock, true);
  if (!should_pause(run)) {
    if (lingers_until_ns_ != 0) return;  // it is called at the next edge again
    run.must_pause_.store(false, std::memory_order_relaxed);
    return;
  }
  stop(run);
  run.must_pause_.store(true, std::memory_order_relaxed);  // helpers leave its job alone until it has a core again
  run.wait_begin_ns_ = now;
  run.state_ = ScheduledRun::State::kWaiting;
  waiting_.push(&run);
  if (ScheduledRun* const w = most_urgent_waiting();
      w != nullptr && w != &run && running_count_.load(std::memory_order_relaxed) < cores_) {
    waiting_.remove(w);  // it need not be woken to ask
    start(*w);
    lock.wake(*w);
  }
  hand_out_cores(lock);
  if (running_count_.load(std::memory_order_relaxed) < cores_) {
    for (const FreeCoreListener* l = listeners_; l != nullptr; l = l->next) l->core_freed(l->context);
  }
  if (!wait_for_core(lock, run, cancel)) {
    run.must_pause_.store(false, std::memory_order_relaxed);
    return RunThread::current().release(&run);
  }
  lock.unlock();
  settle(run);
}

void RunScheduler::add(FreeCoreListener& listener) {
  if (mark_.in_child()) return;  // the lock may be held for ever, and nobody pauses there
  const std::lock_guard<std::mutex> lock(mutex_);
  listener.next = listeners_;
  listeners_ = &listener;
}

void RunScheduler::remove(FreeCoreListener& listener) {
  if (mark_.in_child()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  FreeCoreListener** at = &listeners_;
  while (*at != &listener) at = &(*at)->next;
  *at = listener.next;
}

LentCore::LentCore() noexcept {
  for (int i = 0; i < kMostSchedulers; ++i) runs_[i] = RunThread::current().held[i].run;
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
