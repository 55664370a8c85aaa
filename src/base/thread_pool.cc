// The thread pool. A job is published by opening a gate; a worker joins by counting itself in through the gate, so that the
// caller waits only for workers that joined, never for one that is still asleep or gone. That also makes the pool safe after
// fork: in the child nobody joins, and the caller does all the work.
#include "base/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/checked.h"
#include "base/error.h"

namespace evn {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;          // workers may join
constexpr std::uint32_t kCallerSleeps = 1u << 30;  // the last worker to leave must wake the caller
constexpr int kRelaxPerLook = 32;
constexpr std::int64_t kMostRanges = std::int64_t{1} << 31;
constexpr std::uint64_t kLongLook = 8;  // times the spin budget: where jobs come often

// A worker whose core another process wants holds up the caller: by some milliseconds when it is stopped in the midst of a range,
// by some 100 us each time when both end up on one core, where a worker does not even begin. Such waits, which the length of the
// ranges does not explain, are a debt that is paid off by an eighth of the time of jobs; when it is too large the caller works
// alone for a time, so that they cost a sixteenth.
constexpr std::uint64_t kMostDebt = 200'000;
constexpr std::uint64_t kCostOfSharedCore = 40'000;
constexpr std::uint64_t kPaidOff = 8;
constexpr std::uint64_t kAlonePerDebt = 16;
constexpr std::uint64_t kMostAlone = 100'000'000;
constexpr std::uint64_t kSuspended = 50'000'000;  // no scheduler keeps a thread so long: the process was stopped

enum class Failure : int { kNone, kError, kMemory };

// Calls done() until it is true or the spin budget is spent; says whether it became true.
template <typename Done>
bool spin(std::uint64_t budget_ns, Done done) {
  if (budget_ns == 0) return done();
  const std::uint64_t end = os::now_ns() + budget_ns;
  do {
    for (int i = 0; i < kRelaxPerLook; ++i) {
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

  // Returns how many ranges this thread has done.
  std::uint64_t work(int thread) {
    std::uint64_t done = 0;
    try {
      std::uint32_t range = 0;
      while (!failed.load(std::memory_order_relaxed) && take(static_cast<std::uint32_t>(thread), &range)) {
        const std::int64_t begin = range * grain;
        body(context, thread, begin, count - begin < grain ? count : begin + grain);
        ++done;
      }
    } catch (const Error& e) {
      keep(Failure::kError, &e);
    } catch (const std::bad_alloc&) {
      keep(Failure::kMemory, nullptr);
    } catch (...) {
      const Error e = make_error(EVN_ERROR_INTERNAL, "an unknown exception left a kernel");
      keep(Failure::kError, &e);
    }
    return done;
  }
};

struct ThreadPool::Shared {
  struct Worker {
    Shared* shared;
    int index;
  };

  std::atomic<bool> busy{false};                         // held by the caller of the job that runs, and while threads start
  alignas(64) std::atomic<std::uint32_t> gate{0};        // kOpen, kCallerSleeps, and the number of workers inside
  alignas(64) std::atomic<std::uint32_t> generation{0};  // grows with each job; idle workers sleep on it
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  Job job;
  std::uint64_t spin_ns = 0;
  std::atomic<int> caller_core{-1};
  std::atomic<std::uint32_t> on_one_core{0};  // workers who found themselves on the caller's core
  std::uint64_t debt = 0;                     // ns
  std::uint64_t alone_until = 0;              // the caller of a job asks for no worker before
  bool started = false;
  pid_t owner = 0;
  std::vector<Worker> workers;
  std::vector<Share> shares;
  std::vector<os::Thread> threads;

  static const std::uint32_t* word(const std::atomic<std::uint32_t>& a) { return reinterpret_cast<const std::uint32_t*>(&a); }

  void announce() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) os::futex_wake_all(word(generation));
  }

  // `*often`: whether the job before came so soon that a longer look would have been worth it; kept for the next call.
  void await_generation(std::uint32_t seen, bool* often) {
    const auto changed = [&] { return generation.load(std::memory_order_acquire) != seen; };
    const std::uint64_t start = os::now_ns();
    if (spin(shares_core() ? 0 : *often ? kLongLook * spin_ns : spin_ns, changed)) return;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (!changed()) os::futex_wait(word(generation), seen);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    *often = os::now_ns() - start < kLongLook * spin_ns;
  }

  // Whether this worker only takes the caller's core from him.
  bool shares_core() const {
    const int core = os::current_core();
    return core >= 0 && core == caller_core.load(std::memory_order_relaxed);
  }

  bool join_job() {
    std::uint32_t v = gate.load(std::memory_order_relaxed);
    while ((v & kOpen) != 0) {
      if (gate.compare_exchange_weak(v, v + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  void leave_job() {
    if (gate.fetch_sub(1, std::memory_order_release) == (kCallerSleeps | 1)) os::futex_wake_all(word(gate));
  }

  // `start`, `done`: when the caller began, and how many ranges it has done since.
  void close_gate(std::uint64_t start, std::uint64_t done) {
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const std::uint64_t in_vain = on_one_core.exchange(0, std::memory_order_relaxed) * kCostOfSharedCore;
    if (gate.load(std::memory_order_acquire) == 0 && in_vain == 0) return;
    const std::uint64_t end = os::now_ns();
    const std::uint64_t two_ranges = 2 * (end - start) / (done + 1);
    await_leavers(std::min(two_ranges, kLongLook * spin_ns));
    const std::uint64_t now = os::now_ns();
    const std::uint64_t explained = two_ranges + (now - start) / kPaidOff;
    if (now - end > kSuspended) return;
    const std::uint64_t owed = debt + (now - end) + in_vain;
    debt = owed > explained ? owed - explained : 0;
    if (debt <= kMostDebt) return;
    alone_until = now + std::min(kMostAlone, kAlonePerDebt * debt);
    debt = 0;
  }

  void await_leavers(std::uint64_t look) {
    const auto empty = [&] { return gate.load(std::memory_order_acquire) == 0; };
    if (spin(std::max(spin_ns, look), empty)) return;
    std::uint32_t v = gate.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while (v != kCallerSleeps) {
      os::futex_wait(word(gate), v);
      v = gate.load(std::memory_order_acquire);
    }
    gate.store(0, std::memory_order_relaxed);
  }

  static void worker_main(void* argument) {
    auto* w = static_cast<Worker*>(argument);
    Shared& s = *w->shared;
    std::uint32_t seen = 0;
    bool often = false;
    if (s.shares_core()) os::leave_core();  // here only: a thread that starts makes system calls in any case, a run must not
    while (true) {
      s.await_generation(seen, &often);
      // In this order: who has seen the last generation has seen the stop. A late worker would otherwise wait for another one.
      seen = s.generation.load(std::memory_order_acquire);
      if (s.stop.load(std::memory_order_acquire)) return;
      if (!s.join_job()) continue;
      if (s.shares_core()) {
        s.on_one_core.fetch_add(1, std::memory_order_relaxed);
      } else {
        s.job.work(w->index);
      }
      s.leave_job();
    }
  }

  // Ends the threads that run. After fork the child has none: their handles are dropped, never joined.
  void end_threads() {
    if (owner != getpid()) {
      for (os::Thread& t : threads) ::new (static_cast<void*>(&t)) os::Thread();
    } else {
      stop.store(true, std::memory_order_release);
      announce();
    }
    threads.clear();
    stop.store(false, std::memory_order_relaxed);
  }

  void start(int thread_count) {
    owner = getpid();
    generation.store(0, std::memory_order_relaxed);
    if (shares.empty()) shares = std::vector<Share>(static_cast<std::size_t>(thread_count));
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
    started = true;
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
    auto& j = *static_cast<HostJob*>(context);
    if (index >= j.tasks) return;
    const std::uint64_t bit = std::uint64_t{1} << (index % 64);
    if ((j.begun[index / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0) j.job.work(static_cast<int>(index));
  }
};

ThreadPool::ThreadPool(int thread_count, HostExecutor executor, std::uint64_t spin_ns)
    : thread_count_(std::clamp(thread_count, 1, kMaxThreads)),
      executor_(executor),
      shared_(thread_count_ > 1 && executor.parallel_for == nullptr ? std::make_unique<Shared>() : nullptr) {
  if (shared_) shared_->spin_ns = spin_ns;
}

ThreadPool::~ThreadPool() {
  if (shared_ && shared_->started) shared_->end_threads();
}

void ThreadPool::run_on_host(std::int64_t count, std::int64_t grain, std::int64_t ranges, Body body, void* context) {
  HostJob j;
  j.job.body = body;
  j.job.context = context;
  j.job.count = count;
  j.job.grain = grain;
  j.job.deal(static_cast<std::uint32_t>(ranges), &j.share, 1);
  j.tasks = static_cast<std::uint32_t>(std::min<std::int64_t>(thread_count_, ranges));
  executor_.parallel_for(executor_.user, j.tasks, &HostJob::run, &j);
  j.job.work(0);  // what an executor left undone
  j.job.rethrow();
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, Body body, void* context) {
  if (count <= 0) return;
  grain = std::max({grain, std::int64_t{1}, ceil_div(count, kMostRanges)});
  const std::int64_t ranges = ceil_div(count, grain);
  if (executor_.parallel_for != nullptr && thread_count_ > 1 && ranges > 1) return run_on_host(count, grain, ranges, body, context);
  const auto work_alone = [&] {
    for (std::int64_t begin = 0, left = count; left > 0; begin += grain, left -= grain) {
      body(context, 0, begin, left < grain ? count : begin + grain);
    }
  };
  if (!shared_ || ranges == 1 || shared_->busy.exchange(true, std::memory_order_acquire)) return work_alone();
  Shared& s = *shared_;
  struct Release {
    Shared& s;
    ~Release() { s.busy.store(false, std::memory_order_release); }
  } release{s};
  s.caller_core.store(os::current_core(), std::memory_order_relaxed);
  if (!s.started) s.start(thread_count_);
  const std::uint64_t start = os::now_ns();
  if (start < s.alone_until) return work_alone();

  Job& job = s.job;
  job.body = body;
  job.context = context;
  job.count = count;
  job.grain = grain;
  job.deal(static_cast<std::uint32_t>(ranges), s.shares.data(), static_cast<std::uint32_t>(thread_count_));
  job.failed.store(false, std::memory_order_relaxed);
  job.failure = Failure::kNone;
  s.gate.store(kOpen, std::memory_order_release);
  s.announce();
  const std::uint64_t done = job.work(0);
  s.close_gate(start, done);
  job.rethrow();
}

}  // namespace evn
