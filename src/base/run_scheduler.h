// Which runs compute now. Each run that computes on its caller's thread has a core of those that there are; the others wait for
// one, the most urgent first. A run gives its core up at the edge of a range of tiles when a more urgent one asks for it.
// docs/decisions/0055-run-scheduler.md
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/cancel.h"
#include "base/os/fork_mark.h"
#include "base/os/os.h"
#include "base/scheduling_constants.h"

namespace evn {

// A run of a higher priority has all cores to itself; within one priority, that of the earlier deadline comes first.
struct RunUrgency {
  std::int32_t priority = 0;
  std::uint64_t deadline_ns = 0;  // 0: none
};

// Runs of which no more than so many compute at a time: those of a session.
class RunGroup {
 public:
  explicit RunGroup(int limit) : limit_(limit) {}  // 0: none
  // From any thread. Runs that wait notice it after some milliseconds.
  void set_limit(int limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }

 private:
  friend class RunScheduler;
  bool is_full() const {
    const int limit = limit_.load(std::memory_order_relaxed);
    return limit != 0 && running_ >= limit;
  }

  std::atomic<int> limit_;
  int running_ = 0;  // guarded by the scheduler
};

class ScheduledRun;

// Told of cores that become free for helpers in the midst of others' jobs: threads of a pool. Called with the scheduler's lock
// held.
struct FreeCoreListener {
  void (*core_freed)(void* context) = nullptr;
  void* context = nullptr;
  FreeCoreListener* next = nullptr;
};

// From any thread.
class RunScheduler {
 public:
  // `cores`: how many runs compute at a time at most; 0: all that come, and none is held up.
  explicit RunScheduler(int cores) : cores_(cores) {}

  // Cores that no run's own thread has: for as many threads that help runs.
  int idle_cores() const { return cores_ == 0 ? INT32_MAX : cores_ - running_count_.load(std::memory_order_seq_cst); }

  // Until removed, told when a run makes way for a more urgent one and no other takes its core.
  void add(FreeCoreListener& listener);
  void remove(FreeCoreListener& listener);

 private:
  friend class ScheduledRun;
  struct List {
    ScheduledRun* first = nullptr;
    ScheduledRun* last = nullptr;
    void push(ScheduledRun* run);
    void remove(ScheduledRun* run);
  };

  // The scheduler's lock, and the threads that are woken when it has been given back: one that wakes up while its waker still has
  // the lock only falls asleep again.
  class Lock {
   public:
    explicit Lock(std::mutex& mutex) : lock_(mutex) {}
    ~Lock() { unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void lock() {
      if (!lock_.owns_lock()) lock_.lock();
    }
    void unlock() noexcept;
    void wake(ScheduledRun& run);

   private:
    std::unique_lock<std::mutex> lock_;
    const std::uint32_t* words_[scheduling::kMaxDeferredWakes];
    int count_ = 0;
  };

  void enter(ScheduledRun& run, const Cancel& cancel);
  void leave(ScheduledRun& run) noexcept;
  void pause(ScheduledRun& run, const Cancel& cancel) noexcept;
  bool wait_for_core(Lock& lock, ScheduledRun& run, const Cancel& cancel) noexcept;
  bool has_room_for(const ScheduledRun& run) const;
  bool may_pass(const ScheduledRun& run, std::uint64_t now) const;
  bool may_keep_core(const ScheduledRun& run, std::uint64_t now) const;
  bool has_abandoned_core(int cores, std::uint64_t now) const;
  bool should_pause(const ScheduledRun& run) const;
  bool ask_for_core(const ScheduledRun& run);
  void start(ScheduledRun& run);
  void stop(ScheduledRun& run);
  void hand_out_cores(Lock& lock, bool at_once = false);
  bool linger(const ScheduledRun& run, Lock& lock, std::uint64_t now);
  bool end_linger(bool at_once);
  bool shares_core(const ScheduledRun& run) const;
  void settle(ScheduledRun& run);
  ScheduledRun* most_urgent_waiting() const;

  const int cores_;
  const os::ForkMark mark_;  // runs of the parent are no concern of a forked child, which holds nobody up
  std::atomic<int> running_count_{0};
  std::mutex mutex_;  // guards what follows, and what runs have of the scheduler
  List running_, waiting_;
  FreeCoreListener* listeners_ = nullptr;
  std::uint64_t arrivals_ = 0;
  std::uint64_t lingers_until_ns_ =
      0;                       // until when a thread has its core beyond its run's end, which counts as running; 0: none has
  std::uint64_t lingers_ = 0;  // how many have had
  int lingers_on_ = -1;        // that core
  std::uint64_t kept_ns_ = 0;  // when a thread that is expected back last left its core without waking another
};

// One run, on the stack of the thread that runs it.
class ScheduledRun {
 public:
  ScheduledRun(RunScheduler& scheduler, const RunUrgency& urgency, RunGroup* group, const Cancel& cancel)
      : scheduler_(scheduler), urgency_(urgency), group_(group), cancel_(cancel) {}
  ~ScheduledRun() { leave(); }
  ScheduledRun(const ScheduledRun&) = delete;
  ScheduledRun& operator=(const ScheduledRun&) = delete;

  // Waits for a core; throws the Error of the run's Cancel when that says stop.
  void enter() { scheduler_.enter(*this, cancel_); }
  // Gives the core up: at the run's end, and while it waits for something else.
  void leave() noexcept {
    if (state_ == State::kRunning) scheduler_.leave(*this);
  }

  // Whether the run should make way at the next edge of a range: others stop working for it, its own thread calls pause, which
  // returns when the run may go on, or when its Cancel says stop.
  bool must_pause() const { return must_pause_.load(std::memory_order_relaxed); }
  // Whether others were making way when the run got its core: helpers may come in the midst of a job.
  bool expects_cores() const { return expects_cores_; }
  // Notes where the run computes, for those that come to a core.
  void note_core() { core_.store(os::current_core(), std::memory_order_relaxed); }
  void pause() noexcept { scheduler_.pause(*this, cancel_); }

  // Whether its own thread does all of it. These five are for that thread.
  bool is_alone() const { return alone_; }
  void set_alone(bool alone) { alone_ = alone; }
  // When its first job was open to helpers (0: none was); and what the parts that they did would have taken on its own thread.
  std::uint64_t first_help_ns() const { return first_help_ns_; }
  std::uint64_t saved_ns() const { return saved_ns_; }
  void note_help(std::uint64_t begin_ns, std::uint64_t saved_ns) {
    if (first_help_ns_ == 0) first_help_ns_ = begin_ns;
    saved_ns_ += saved_ns;
  }

  // Condition that stops the run.
  const Cancel& cancel() const { return cancel_; }
  // What it has waited for cores so far.
  std::uint64_t waited_ns() const { return waited_ns_; }

 private:
  friend class RunScheduler;
  enum class State : std::uint8_t { kOutside, kRunning, kWaiting };
  enum Signal : std::uint32_t { kNone, kLook, kStarted };

  bool is_more_urgent_than(const ScheduledRun& other) const;

  RunScheduler& scheduler_;
  const RunUrgency urgency_;
  RunGroup* const group_;
  const Cancel& cancel_;
  State state_ = State::kOutside;
  bool woken_ = false;    // while it waits: somebody has told it that there is a core
  bool boosted_ = false;  // while it runs: until boost_end_ns_
  bool expects_cores_ = false;
  std::atomic<bool> must_pause_{false};
  std::atomic<int> core_{-1};  // on which its thread was last; negative: not known
  std::uint64_t arrival_ = 0;
  std::uint64_t wait_begin_ns_ = 0;
  std::uint64_t boost_end_ns_ = 0;
  std::uint64_t begin_ns_ = 0;  // when it last got a core
  std::uint64_t waited_ns_ = 0;
  bool alone_ = false;
  std::uint64_t first_help_ns_ = 0;
  std::uint64_t saved_ns_ = 0;
  std::atomic<std::uint32_t> signal_{kNone};  // on which its thread sleeps
  ScheduledRun* before_ = nullptr;
  ScheduledRun* after_ = nullptr;
};

}  // namespace evn
