// The threads of one CPU device. They start when first needed, and work for several callers at a time, where the scheduler leaves
// cores to them. Each has a share of a job's tiles, the same part of every job, and takes others' when it has done its own, so that
// a slow core holds nobody up. They spin for a bounded time between jobs and then sleep on a futex.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/os/os.h"
#include "base/run_scheduler.h"
#include "base/scheduling_constants.h"
#include "evener/evener.h"

namespace evn {

// The host's threads instead of ours.
struct HostExecutor {
  evn_parallel_for parallel_for = nullptr;  // nullptr: there is none
  void* user = nullptr;
};

inline constexpr std::uint64_t kDefaultSpinNs = scheduling::kSpinNs;

class ThreadPool {
 public:
  // `thread_count` counts the caller; 1 starts no thread ever. With an executor none is started, and thread_count is the number of
  // its tasks; at most kMaxThreads.
  // `spin_ns`: how long a thread looks for work, or for the end of others' work, before it sleeps; eight times as long where the
  // job before came within that time, and for the end of what others have in hand.
  static constexpr int kMaxThreads = 1024;
  // `scheduler` (nullable, outlives the pool) says how many cores are left to threads of the pool.
  explicit ThreadPool(int thread_count, HostExecutor executor = {}, std::uint64_t spin_ns = kDefaultSpinNs,
                      RunScheduler* scheduler = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return thread_count_; }

  // Calls body(context, thread, begin, end) over disjoint ranges that cover [0, count). `thread` is in [0, thread_count()) and no
  // two calls of one job have the same at a time; `grain` is the size of a range. The caller works too, and does all by itself
  // where no core is idle, in a body of another job, and when kMostJobs are under way: it never waits for another's job. Between
  // ranges `run` (nullable), which the job is a part of, makes way for others. The first exception that a body throws is rethrown
  // here after all ranges have ended; further ranges are skipped. Allocates only when threads start. When a thread cannot be
  // started: throws EVN_ERROR_NO_THREADS, nothing has run.
  using Body = void (*)(void* context, int thread, std::int64_t begin, std::int64_t end);
  void parallel_for(std::int64_t count, std::int64_t grain, Body body, void* context, ScheduledRun* run = nullptr);
  static constexpr int kMostJobs = scheduling::kMaxJobs;

 private:
  struct Job;
  class Share;
  struct Slot;
  struct Shared;
  struct HostJob;
  void run_on_host(std::int64_t count, std::int64_t grain, std::int64_t ranges, Body body, void* context);

  int thread_count_;
  HostExecutor executor_;
  RunScheduler* scheduler_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace evn
