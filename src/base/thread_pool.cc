// The thread pool. A job is published by opening the gate of a slot; a worker joins by counting itself in through the gate, so that
// the caller waits only for workers that joined, never for one that is still asleep or gone. That also makes the pool safe after
// fork: in the child nobody joins, and the caller does all the work.
#include "base/thread_pool.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/float_environment.h"
#include "base/heap.h"
#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/os/futex.h"
#include "base/run_thread.h"

namespace evn {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;          // workers may join
constexpr std::uint32_t kCallerSleeps = 1u << 30;  // the last worker to leave must wake the caller
constexpr std::int64_t kMostRanges = std::int64_t{1} << 31;

// A worker whose core another process wants holds up the caller: by some milliseconds when it is stopped in the midst of a range,
// by some 100 us each time when both are on one core, where a worker does not even begin. Such waits, which the length of the
// ranges does not explain, are a debt. The caller works alone for a time when the debt is too large.

enum class Failure : int { kNone, kError, kMemory };

// Calls done() until it is true or the spin budget is spent; says whether it became true.
template <typename Done>
bool spin(std::uint64_t budget_ns, Done done) {
  if (budget_ns == 0) return done();
  const std::uint64_t end = os::now_ns() + budget_ns;
  do {
    for (int i = 0; i < scheduling::kSpinsPerClockRead; ++i) {
      if (done()) return true;
      os::relax();
    }
  } while (os::now_ns() < end);
  return false;
}

}  // namespace

// A run of ranges that one thread should do, first to last; who has no more of his own takes from the end of another's.
class alignas(64) ThreadPool::Share {
 public:
  void set(std::uint32_t begin, std::uint32_t end) { left_.store(pack(begin, end), std::memory_order_relaxed); }

  bool take_first(std::uint32_t* range) {
    return take([&](std::uint32_t begin, std::uint32_t end) { return *range = begin, pack(begin + 1, end); });
  }
  bool take_last(std::uint32_t* range) {
    return take([&](std::uint32_t begin, std::uint32_t end) { return *range = end - 1, pack(begin, end - 1); });
  }

 private:
  std::atomic<std::uint64_t> left_{0};  // begin, and above it the end

  static std::uint64_t pack(std::uint32_t begin, std::uint32_t end) { return std::uint64_t{end} << 32 | begin; }

  template <typename Rest>
  bool take(Rest rest) {
    std::uint64_t v = left_.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<std::uint32_t>(v);
      const auto end = static_cast<std::uint32_t>(v >> 32);
      if (begin >= end) return false;
      if (left_.compare_exchange_weak(v, rest(begin, end), std::memory_order_relaxed)) return true;
    }
  }
};

struct ThreadPool::Job {
  Body body = nullptr;
  void* context = nullptr;
  std::int64_t count = 0;
  std::int64_t grain = 1;
  ScheduledRun* run = nullptr;
  Heap* heap = nullptr;     // of the caller
  Share* shares = nullptr;  // of the threads
  std::uint32_t share_count = 0;
  std::atomic<bool> failed{false};  // set once; its setter writes what follows
  Failure failure = Failure::kNone;
  Error error;

  // Deals out `ranges` evenly, so that the same part of every job falls to the same thread, whose cache has what it made before.
  void deal(std::uint32_t ranges, Share* to, std::uint32_t threads) {
    shares = to;
    share_count = threads;
    for (std::uint32_t t = 0; t < threads; ++t) {
      const auto edge = [&](std::uint64_t i) { return static_cast<std::uint32_t>(ranges * i / threads); };
      shares[t].set(edge(t), edge(t + 1));
    }
  }

  bool take(std::uint32_t thread, std::uint32_t* range) {
    const std::uint32_t own = thread < share_count ? thread : 0;
    if (shares[own].take_first(range)) return true;
    for (std::uint32_t i = 1; i < share_count; ++i) {
      const std::uint32_t other = own + i < share_count ? own + i : own + i - share_count;
      if (shares[other].take_last(range)) return true;
    }
    return false;
  }

  void keep(Failure what, const Error* e) {
    if (failed.exchange(true, std::memory_order_acq_rel)) return;
    failure = what;
    if (e != nullptr) error = *e;
  }

  void rethrow() const {
    if (failure == Failure::kError) throw Error(error);
    if (failure == Failure::kMemory) throw std::bad_alloc();
  }

  bool must_pause() const { return run != nullptr && run->must_pause(); }
  [[gnu::cold]] bool make_way(Shared* caller);

  // Works until nothing is left; helpers, until the run must make way. `caller` (null for helpers): to tell that it goes on.
  // Returns how many ranges this thread has done.
  std::uint64_t work(int thread, Shared* caller = nullptr) {
    std::uint64_t done = 0;
    const HeapScope counted(heap);
    const bool outer = std::exchange(RunThread::current().in_body, true);
    try {
      std::uint32_t range = 0;
      while (!failed.load(std::memory_order_relaxed)) {
        if (must_pause() && !make_way(caller)) break;
        if (!take(static_cast<std::uint32_t>(thread), &range)) break;
        const std::int64_t begin = range * grain;
        body(context, thread, begin, count - begin < grain ? count : begin + grain);
        ++done;
      }
    } catch (const Error& e) {
      keep(Failure::kError, &e);
    } catch (const HeapRefused& refused) {
      keep(Failure::kError, &refused.error);
    } catch (const std::bad_alloc&) {
      keep(Failure::kMemory, nullptr);
    } catch (...) {
      const Error e = make_error(EVN_ERROR_INTERNAL, "an unknown exception left a kernel");
      keep(Failure::kError, &e);
    }
    RunThread::current().in_body = outer;
    if (caller == nullptr) heap_meter().report();  // a helper may sleep for long now
    return done;
  }
};

// Where a job is while it is under way.
struct alignas(64) ThreadPool::Slot {
  std::atomic<std::uint32_t> gate{0};  // kOpen, kCallerSleeps, and the number of workers inside
  std::atomic<int> caller_core{-1};
  std::atomic<std::uint32_t> on_one_core{0};  // workers who found themselves on the caller's core
  Job job;
  std::vector<Share> shares;

  bool join() {
    std::uint32_t v = gate.load(std::memory_order_seq_cst);
    while ((v & kOpen) != 0) {
      if (gate.compare_exchange_weak(v, v + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  void leave() {
    if (gate.fetch_sub(1, std::memory_order_release) == (kCallerSleeps | 1)) os::futex_wake_all(os::futex_word(gate));
  }

  // Whether a worker only takes the caller's core from him.
  bool shares_core() const {
    const int core = os::current_core();
    return core >= 0 && core == caller_core.load(std::memory_order_relaxed);
  }

  // Throws in a child that was forked in the midst of the job: what workers had in hand will never be done.
  void await_leavers(std::uint64_t look, std::uint32_t started_in) {
    const auto empty = [&] { return gate.load(std::memory_order_acquire) == 0; };
    if (started_in != os::fork_generation() && !empty())
      fail(EVN_ERROR_FORKED, "the process forked while threads that the child does not have worked for this run");
    if (spin(look, empty)) return;
    std::uint32_t v = gate.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while (v != kCallerSleeps) {
      os::futex_wait(os::futex_word(gate), v);
      v = gate.load(std::memory_order_acquire);
    }
    gate.store(0, std::memory_order_relaxed);
  }
};

struct ThreadPool::Shared {
  struct Worker {
    Shared* shared;
    int index;
  };

  alignas(64) std::atomic<std::uint32_t> generation{0};  // grows with each job; idle workers sleep on it
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<std::uint32_t> taken{0};  // bit i: a caller has slot i
  std::uint64_t spin_ns = 0;
  RunScheduler* scheduler = nullptr;
  FreeCoreListener listener{[](void* shared) { static_cast<Shared*>(shared)->announce(); }, this};
  std::atomic<std::uint64_t> debt{0};              // ns
  std::atomic<std::uint64_t> alone_until{0};       // the caller of a job asks for no worker before
  std::atomic<std::uint64_t> lost_on_one_core{0};  // ns of jobs in a row that were not helped as a worker was on its caller's core
  Mutex starting;
  std::atomic<bool> started{false};
  std::uint32_t started_in = 0;
  std::vector<Worker> workers;
  std::vector<os::Thread> threads;
  Slot slots[kMostJobs];

  // Slot number i; negative when all are taken.
  int take_slot() {
    std::uint32_t v = taken.load(std::memory_order_relaxed);
    while (v != (1u << kMostJobs) - 1) {
      const int free = std::countr_one(v);
      if (taken.compare_exchange_weak(v, v | 1u << free, std::memory_order_acquire, std::memory_order_relaxed)) return free;
    }
    return -1;
  }
  void free_slot(int i) { taken.fetch_and(~(1u << i), std::memory_order_release); }

  int idle_cores() const { return scheduler != nullptr ? scheduler->idle_cores() : INT32_MAX; }

  void announce() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) os::futex_wake_all(os::futex_word(generation));
  }

  // `*often`: whether the job before came so soon that a longer look would have been worth it; kept for the next call. `look`: or
  // sleep at once.
  void await_generation(std::uint32_t seen, bool look, bool* often) {
    const auto changed = [&] { return generation.load(std::memory_order_acquire) != seen; };
    const std::uint64_t start = os::now_ns();
    if (spin(!look ? 0 : *often ? scheduling::kLongSpinFactor * spin_ns : spin_ns, changed)) return;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (!changed()) os::futex_wait(os::futex_word(generation), seen);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    *often = os::now_ns() - start < scheduling::kLongSpinFactor * spin_ns;
  }

  // `start`, `done`: when the caller began, and how many ranges it has done since. `helped`: workers have done others.
  void close_gate(Slot& slot, std::uint64_t start, std::uint64_t done, bool helped) {
    slot.gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    if (helped && lost_on_one_core.load(std::memory_order_relaxed) != 0) lost_on_one_core.store(0, std::memory_order_relaxed);
    const std::uint64_t in_vain = slot.on_one_core.exchange(0, std::memory_order_relaxed) * scheduling::kSharedCoreDebtNs;
    if (slot.gate.load(std::memory_order_acquire) == 0 && in_vain == 0) return;
    const std::uint64_t end = os::now_ns();
    if (in_vain != 0) lost_on_one_core.fetch_add(end - start, std::memory_order_relaxed);
    const std::uint64_t two_ranges = 2 * (end - start) / (done + 1);
    slot.await_leavers(std::max(spin_ns, std::min(two_ranges, scheduling::kLongSpinFactor * spin_ns)), started_in);
    const std::uint64_t now = os::now_ns();
    const std::uint64_t explained = two_ranges + (now - start) / scheduling::kDebtRepaymentShare;
    if (now - end > scheduling::kSuspendedNs) return;
    const std::uint64_t waited = done != 0 ? now - end : 0;  // without a range of its own it cannot know how long one takes
    const std::uint64_t owed = debt.load(std::memory_order_relaxed) + waited + in_vain;
    const std::uint64_t left = owed > explained ? owed - explained : 0;
    debt.store(left > scheduling::kMaxDebtNs ? 0 : left, std::memory_order_relaxed);
    if (left > scheduling::kMaxDebtNs)
      alone_until.store(now + std::min(scheduling::kMaxAloneNs, scheduling::kAlonePerDebt * left), std::memory_order_relaxed);
  }

  // Does what it can of one caller's job. False when that was nothing.
  bool help(Slot& slot, int index) {
    if (!slot.join()) return false;
    std::uint64_t done = 0;
    bool shares = slot.shares_core();
    if (shares && !slot.job.must_pause()) {
      slot.on_one_core.fetch_add(1, std::memory_order_relaxed);
      if (index <= idle_cores() && lost_on_one_core.load(std::memory_order_relaxed) >= scheduling::kMinLossForMoveNs) {
        lost_on_one_core.store(0, std::memory_order_relaxed);
        os::leave_core();
        shares = slot.shares_core();
      }
    }
    if (!shares && index <= idle_cores()) done = slot.job.work(index);
    slot.leave();
    return done != 0;
  }

  // Helps all callers. *alone: no core was left to this thread, which might as well sleep.
  void help_all(int index, bool* alone) {
    bool some = true;
    while (some && !stop.load(std::memory_order_relaxed)) {
      some = false;
      for (std::uint32_t left = taken.load(std::memory_order_acquire); left != 0; left &= left - 1) {
        some |= help(slots[std::countr_zero(left)], index);
      }
    }
    *alone = index > idle_cores() || slots[0].shares_core();
  }

  static void worker_main(void* argument) {
    auto* w = static_cast<Worker*>(argument);
    Shared& s = *w->shared;
    std::uint32_t seen = 0;
    bool often = false;
    bool alone = s.slots[0].shares_core();
    if (alone) os::leave_core();
    while (true) {
      s.await_generation(seen, !alone, &often);
      // In this order: who has seen the last generation has seen the stop. A late worker would otherwise wait for another one.
      seen = s.generation.load(std::memory_order_acquire);
      if (s.stop.load(std::memory_order_acquire)) return;
      s.help_all(w->index, &alone);
      if (s.started_in != os::fork_generation()) return;  // a body has forked; nobody has work for this thread there
    }
  }

  // Ends the threads that run. After fork the child has none: their handles are dropped, never joined.
  [[gnu::cold]] void end_threads() {
    if (started_in != os::fork_generation()) {
      for (os::Thread& t : threads) ::new (static_cast<void*>(&t)) os::Thread();
    } else {
      stop.store(true, std::memory_order_release);
      announce();
    }
    threads.clear();
    stop.store(false, std::memory_order_relaxed);
  }

  // False in a forked child that began while another thread started them.
  [[gnu::cold]] bool start(int thread_count) {
    if (!starting.lock_if_alive()) return false;
    const std::lock_guard<Mutex> lock(starting, std::adopt_lock);
    if (started.load(std::memory_order_relaxed)) return true;
    started_in = os::fork_generation();
    generation.store(0, std::memory_order_relaxed);
    for (Slot& slot : slots) {
      if (slot.shares.empty()) slot.shares = std::vector<Share>(static_cast<std::size_t>(thread_count));
    }
    workers.resize(static_cast<std::size_t>(thread_count - 1));
    threads.reserve(workers.size());
    try {
      for (std::size_t i = 0; i < workers.size(); ++i) {
        workers[i] = {this, static_cast<int>(i) + 1};
        threads.emplace_back(&worker_main, &workers[i]);
      }
    } catch (...) {
      end_threads();
      throw;
    }
    started.store(true, std::memory_order_release);
    return true;
  }
};

// A job in the host's hands. It shares nothing with other jobs, so that any number may be under way. Which tasks have begun is
// noted, so that an executor that repeats an index never gives two threads the same scratch memory.
struct ThreadPool::HostJob {
  Job job;
  Share share;  // one for all: which thread runs a task is the host's choice
  std::uint32_t tasks = 0;
  std::atomic<std::uint64_t> begun[kMaxThreads / 64] = {};

  static void run(void* context, std::uint32_t index) {
    const LibraryFloatEnvironment floats;
    auto& j = *static_cast<HostJob*>(context);
    if (index >= j.tasks) return;
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    if ((j.begun[index / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0) j.job.work(static_cast<int>(index));
  }
};

bool ThreadPool::Job::make_way(Shared* caller) {
  if (caller == nullptr) return false;
  run->pause();
  caller->announce();  // others may help again
  return true;
}

[[gnu::cold]] ThreadPool::ThreadPool(int thread_count, HostExecutor executor, std::uint64_t spin_ns, RunScheduler* scheduler)
    : thread_count_(std::clamp(thread_count, 1, kMaxThreads)),
      executor_(executor),
      scheduler_(scheduler),
      shared_(thread_count_ > 1 && executor.parallel_for == nullptr ? std::make_unique<Shared>() : nullptr) {
  if (!shared_) return;
  shared_->spin_ns = spin_ns;
  shared_->scheduler = scheduler;
  if (scheduler != nullptr) scheduler->add(shared_->listener);
}

[[gnu::cold]] ThreadPool::~ThreadPool() {
  if (shared_ && scheduler_ != nullptr) scheduler_->remove(shared_->listener);
  if (shared_ && shared_->started) shared_->end_threads();
}

void ThreadPool::run_on_host(std::int64_t count, std::int64_t grain, std::int64_t ranges, Body body, void* context) {
  HostJob j;
  j.job.body = body;
  j.job.context = context;
  j.job.count = count;
  j.job.grain = grain;
  j.job.heap = heap_meter().heap;
  j.job.deal(static_cast<std::uint32_t>(ranges), &j.share, 1);
  j.tasks = static_cast<std::uint32_t>(std::min<std::int64_t>(thread_count_, ranges));
  {
    const HostFloatEnvironment hosts;
    executor_.parallel_for(executor_.user, j.tasks, &HostJob::run, &j);
  }
  j.job.work(0);  // what an executor left undone
  j.job.rethrow();
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, Body body, void* context, ScheduledRun* run) {
  if (count <= 0) return;
  grain = std::max({grain, std::int64_t{1}, ceil_div(count, kMostRanges)});
  const std::int64_t ranges = ceil_div(count, grain);
  if (executor_.parallel_for != nullptr && thread_count_ > 1 && ranges > 1) return run_on_host(count, grain, ranges, body, context);
  const auto work_alone = [&] {
    for (std::int64_t begin = 0, left = count; left > 0; begin += grain, left -= grain) {
      if (run != nullptr && run->must_pause()) run->pause();
      body(context, 0, begin, left < grain ? count : begin + grain);
    }
  };
  if (!shared_ || ranges == 1 || RunThread::current().in_body || (run != nullptr && run->is_alone())) return work_alone();
  if (shared_->idle_cores() <= 0 && (run == nullptr || !run->expects_cores())) return work_alone();
  Shared& s = *shared_;
  const int core = os::current_core();
  if (!s.started.load(std::memory_order_acquire)) {
    s.slots[0].caller_core.store(core, std::memory_order_relaxed);
    if (!s.start(thread_count_)) return work_alone();
  }
  const std::uint64_t start = os::now_ns();
  if (start < s.alone_until.load(std::memory_order_relaxed)) return work_alone();
  const int number = s.take_slot();
  if (number < 0) return work_alone();
  struct Release {
    Shared& s;
    int number;
    ~Release() { s.free_slot(number); }
  } release{s, number};
  Slot& slot = s.slots[number];
  slot.caller_core.store(core, std::memory_order_relaxed);
  Job& job = slot.job;
  job.body = body;
  job.context = context;
  job.count = count;
  job.grain = grain;
  job.run = run;
  job.heap = heap_meter().heap;
  job.deal(static_cast<std::uint32_t>(ranges), slot.shares.data(), static_cast<std::uint32_t>(thread_count_));
  job.failed.store(false, std::memory_order_relaxed);
  job.failure = Failure::kNone;
  // Where no core is free yet, the workers are woken once one is. All of this is in one order: whichever comes later, the open gate
  // or the free core, sees the other.
  slot.gate.exchange(kOpen, std::memory_order_seq_cst);
  if (s.idle_cores() > 0) s.announce();
  const std::uint64_t done = job.work(0, &s);
  s.close_gate(slot, start, done, done < static_cast<std::uint64_t>(ranges));
  if (run != nullptr) {
    const std::uint64_t helped = static_cast<std::uint64_t>(ranges) - done;
    run->note_help(start, helped != 0 ? (os::now_ns() - start) * helped / (done + 1) : 0);
  }
  job.rethrow();
}

}  // namespace evn
