// Which runs compute: the number of cores, priorities, deadlines, groups, cancellation of a run that waits, starvation, forked
// children. Who computes is asked, never how long anything takes.
#include "base/run_scheduler.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/os/os.h"
#include "base/thread_pool.h"
#include "tests/support/eventually.h"

namespace evn {
using test::eventually;

namespace {

// Has the calling thread run on one of its cores alone. The threads that it makes do so as long as they live.
class OnCore {
 public:
  explicit OnCore(int number) {
    ::pthread_getaffinity_np(::pthread_self(), sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &before_) && number-- == 0) CPU_SET(core, &one);
    }
    ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
  }
  ~OnCore() { ::pthread_setaffinity_np(::pthread_self(), sizeof before_, &before_); }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  cpu_set_t before_;
};

// A run on a thread of its own, which computes until it is told to end, and pauses whenever it must.
class Worker {
 public:
  Worker(RunScheduler& scheduler, RunUrgency urgency, RunGroup* group = nullptr)
      : thread_([this, &scheduler, urgency, group] {
          ScheduledRun run(scheduler, urgency, group, cancel_);
          try {
            run.enter();
          } catch (const Error& e) {
            status_ = e.status;
            return;
          }
          ++entered_;
          computing_ = true;
          while (!end_) {
            ++looks_;
            if (run.must_pause()) {
              computing_ = false;
              ++pauses_;
              run.pause();
              computing_ = true;
            }
            std::this_thread::yield();
          }
          computing_ = false;
        }) {}
  ~Worker() {
    cancel();  // where it still waits
    end();
  }
  void end() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool computes() const { return computing_; }
  int entered() const { return entered_; }
  int pauses() const { return pauses_; }
  evn_status status() const { return status_; }
  std::int64_t looks() const { return looks_; }
  void cancel() { token_.requested = true; }

 private:
  CancelToken token_;
  Cancel cancel_{{0, &token_.requested}};
  std::atomic<bool> end_{false}, computing_{false};
  std::atomic<int> entered_{0}, pauses_{0};
  std::atomic<std::int64_t> looks_{0};
  std::atomic<evn_status> status_{EVN_OK};
  std::thread thread_;
};

// Long enough for a run that may compute to begin.
void let_others_try() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(RunScheduler, NoMoreRunsComputeThanThereAreCores) {
  RunScheduler scheduler(2);
  std::atomic<int> inside{0}, most{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const Cancel cancel;
        ScheduledRun run(scheduler, {}, nullptr, cancel);
        run.enter();
        const int now = ++inside;
        int seen = most;
        while (now > seen && !most.compare_exchange_weak(seen, now)) {}
        std::this_thread::yield();
        --inside;
        ++done;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_LE(most, 2);
  EXPECT_EQ(done, 8 * 300);
  EXPECT_EQ(scheduler.idle_cores(), 2);
}

// Threads that come back at once keep their cores for a while without waking another. No thread is left waiting when the others
// end, each after another number of runs.
TEST(RunScheduler, QuickRunsOfManyThreadsAllEnd) {
  for (const int cores : {1, 2, 3}) {
    RunScheduler scheduler(cores);
    std::atomic<int> inside{0}, most{0}, done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500 * t; ++i) {
          const Cancel cancel;
          ScheduledRun run(scheduler, {}, nullptr, cancel);
          run.enter();
          const int now = ++inside;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {}
          --inside;
          ++done;
        }
      });
    }
    for (auto& t : threads) t.join();
    EXPECT_LE(most, cores);
    EXPECT_EQ(done, 500 * (1 + 2 + 3 + 4 + 5 + 6 + 7));
    EXPECT_EQ(scheduler.idle_cores(), cores);
  }
}

TEST(RunScheduler, WithoutABoundAllCompute) {
  RunScheduler scheduler(0);
  Worker a(scheduler, {}), b(scheduler, {}), c(scheduler, {});
  EXPECT_TRUE(eventually([&] { return a.computes() && b.computes() && c.computes(); }));
}

TEST(RunScheduler, AHigherPriorityHasAllCoresToItself) {
  RunScheduler scheduler(2);
  Worker low(scheduler, {0});
  ASSERT_TRUE(eventually([&] { return low.computes(); }));
  Worker high(scheduler, {1});
  EXPECT_TRUE(eventually([&] { return high.computes() && !low.computes(); }));
  Worker late(scheduler, {0});  // there is a free core, which is the helpers'
  let_others_try();
  EXPECT_EQ(late.entered(), 0);
  EXPECT_EQ(scheduler.idle_cores(), 1);
  high.end();
  EXPECT_TRUE(eventually([&] { return low.computes() && late.computes(); }));
}

TEST(RunScheduler, ACoreGoesToTheEarlierDeadline) {
  RunScheduler scheduler(1);
  const std::uint64_t far = os::now_ns() + 3'600'000'000'000;
  Worker none(scheduler, {0, 0});
  ASSERT_TRUE(eventually([&] { return none.computes(); }));
  Worker later(scheduler, {0, far + 1'000'000});
  ASSERT_TRUE(eventually([&] { return later.computes() && !none.computes(); }));
  Worker sooner(scheduler, {0, far});
  ASSERT_TRUE(eventually([&] { return sooner.computes() && !later.computes(); }));
  Worker other(scheduler, {0, 0});
  sooner.end();
  EXPECT_TRUE(eventually([&] { return later.computes(); }));
  EXPECT_FALSE(none.computes());
  later.end();
  EXPECT_TRUE(eventually([&] { return none.computes() || other.computes(); }));
}

TEST(RunScheduler, RunsOfOneUrgencyDoNotInterruptEachOther) {
  RunScheduler scheduler(1);
  Worker first(scheduler, {});
  ASSERT_TRUE(eventually([&] { return first.computes(); }));
  Worker second(scheduler, {});
  let_others_try();
  EXPECT_EQ(first.pauses(), 0);
  EXPECT_EQ(second.entered(), 0);
  first.end();
  EXPECT_TRUE(eventually([&] { return second.computes(); }));
}

TEST(RunScheduler, AGroupHasItsOwnLimit) {
  RunScheduler scheduler(3);
  RunGroup group(1);
  Worker a(scheduler, {}, &group);
  ASSERT_TRUE(eventually([&] { return a.computes(); }));
  Worker b(scheduler, {}, &group);
  Worker other(scheduler, {});
  EXPECT_TRUE(eventually([&] { return other.computes(); }));
  let_others_try();
  EXPECT_EQ(b.entered(), 0);
  a.end();
  EXPECT_TRUE(eventually([&] { return b.computes(); }));
}

TEST(RunScheduler, ARunThatWaitsCanBeCancelled) {
  RunScheduler scheduler(1);
  Worker first(scheduler, {});
  ASSERT_TRUE(eventually([&] { return first.computes(); }));
  Worker second(scheduler, {});
  let_others_try();
  second.cancel();
  EXPECT_TRUE(eventually([&] { return second.status() == EVN_ERROR_CANCELLED; }));
  Worker third(scheduler, {});
  first.end();
  EXPECT_TRUE(eventually([&] { return third.computes(); }));
}

TEST(RunScheduler, ARunThatWaitsEndsAtItsDeadline) {
  RunScheduler scheduler(1);
  Worker first(scheduler, {});
  ASSERT_TRUE(eventually([&] { return first.computes(); }));
  Cancel cancel;
  cancel.deadline_ns = deadline_clock_ns() + 5'000'000;
  ScheduledRun run(scheduler, {}, nullptr, cancel);
  try {
    run.enter();
    ADD_FAILURE() << "it got a core";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_TIMEOUT);
  }
}

TEST(RunScheduler, APausedRunThatIsCancelledGoesOnToItsEnd) {
  RunScheduler scheduler(1);
  Worker low(scheduler, {0});
  ASSERT_TRUE(eventually([&] { return low.computes(); }));
  Worker high(scheduler, {1});
  ASSERT_TRUE(eventually([&] { return high.computes() && !low.computes(); }));
  low.cancel();
  EXPECT_TRUE(eventually([&] { return low.computes(); }));  // to find out that it must stop
  low.end();
  EXPECT_TRUE(high.computes());
  EXPECT_EQ(scheduler.idle_cores(), 0);
}

TEST(RunScheduler, ALowPriorityIsNotStarved) {
  RunScheduler scheduler(1);
  Worker low(scheduler, {0});
  ASSERT_TRUE(eventually([&] { return low.computes(); }));
  std::atomic<bool> end{false};
  const auto busy = [&] {  // two of them: a core that is always asked for by somebody more urgent
    while (!end) {
      const Cancel cancel;
      ScheduledRun run(scheduler, {1}, nullptr, cancel);
      run.enter();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  std::thread one(busy), two(busy);
  EXPECT_TRUE(eventually([&] { return low.pauses() > 0; }));
  const int pauses = low.pauses();
  EXPECT_TRUE(eventually([&] { return low.pauses() > pauses + 1; }));
  end = true;
  one.join();
  two.join();
  EXPECT_TRUE(eventually([&] { return low.computes(); }));
}

// Many short runs of a higher priority: after each, those that made way get all cores again, whichever of them looks at the time.
TEST(RunScheduler, AfterAnUrgentRunAllCoresAreGivenBack) {
  for (const int cores : {1, 2, 3}) {
    RunScheduler scheduler(cores);
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < cores; ++i) workers.push_back(std::make_unique<Worker>(scheduler, RunUrgency{0}));
    const auto all_compute = [&] {
      return eventually([&] {
        int computing = 0;
        for (const auto& w : workers) computing += w->computes() ? 1 : 0;
        return computing == cores && scheduler.idle_cores() == 0;
      });
    };
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(all_compute()) << cores << " cores, urgent run " << i;
      const Cancel cancel;
      ScheduledRun run(scheduler, {1}, nullptr, cancel);
      run.enter();
    }
    EXPECT_TRUE(all_compute());
  }
}

TEST(RunScheduler, WhenTheOnlyOneThatWouldLookAtTheTimeEndsTheRestGoOn) {
  RunScheduler scheduler(2);
  Worker first(scheduler, {0}), second(scheduler, {0});
  ASSERT_TRUE(eventually([&] { return first.computes() && second.computes(); }));
  {
    const Cancel cancel;
    ScheduledRun run(scheduler, {1}, nullptr, cancel);
    run.enter();
    ASSERT_TRUE(eventually([&] { return !first.computes() && !second.computes(); }));
  }
  first.end();
  EXPECT_TRUE(eventually([&] { return second.computes(); }));
}

// A job of the urgent run that begins before others have made way gets helpers once they have.
TEST(RunScheduler, HelpersComeInTheMidstOfAJobWhenOthersHaveMadeWay) {
  if (os::usable_cores() < 2) GTEST_SKIP() << "helpers on the caller's core do not help";
  RunScheduler scheduler(2);
  ThreadPool pool(2, {}, kDefaultSpinNs, &scheduler);
  {
    const OnCore other(1);  // where the worker stays, which the first job begins
    pool.parallel_for(
        2, 1, [](void*, int, std::int64_t, std::int64_t) {}, nullptr);
  }
  std::atomic<bool> may_pause{false}, ends{false};
  std::thread low([&] {
    const Cancel cancel;
    ScheduledRun run(scheduler, {0}, nullptr, cancel);
    run.enter();
    while (!ends) {
      if (may_pause && run.must_pause()) run.pause();
      std::this_thread::yield();
    }
  });
  struct State {
    std::atomic<bool>& may_pause;
    std::atomic<bool> helped{false};
  } state{may_pause};
  const auto body = [](void* context, int thread, std::int64_t, std::int64_t) {
    auto& s = *static_cast<State*>(context);
    s.may_pause = true;  // the job is under way
    if (thread != 0) s.helped = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const OnCore here(0);  // a worker on this core would not help
  EXPECT_TRUE(eventually([&] {
    may_pause = false;
    const Cancel cancel;
    ScheduledRun run(scheduler, {1}, nullptr, cancel);
    if (!eventually([&] { return scheduler.idle_cores() == 1; })) return false;
    run.enter();
    EXPECT_EQ(scheduler.idle_cores(), 0);
    pool.parallel_for(300, 1, body, &state, &run);  // long enough for a worker to get a core of a busy machine
    return state.helped.load();
  }));
  ends = true;
  low.join();
}

TEST(RunScheduler, HelpersTakeOnlyCoresThatNoRunHas) {
  RunScheduler scheduler(2);
  ThreadPool pool(2, {}, kDefaultSpinNs, &scheduler);
  Worker other(scheduler, {});
  ASSERT_TRUE(eventually([&] { return other.computes(); }));
  const Cancel cancel;
  ScheduledRun run(scheduler, {}, nullptr, cancel);
  run.enter();
  std::atomic<int> by_helper{0};
  for (int i = 0; i < 200; ++i) {
    pool.parallel_for(
        64, 1, [](void* context, int thread, std::int64_t, std::int64_t) { *static_cast<std::atomic<int>*>(context) += thread; },
        &by_helper, &run);
  }
  EXPECT_EQ(by_helper, 0);
}

// A job of a run that makes way in its midst is done to its end all the same, each range once, with helpers or without.
TEST(RunScheduler, AJobGoesOnAfterAPause) {
  for (const int threads : {1, 3}) {
    RunScheduler scheduler(threads);
    ThreadPool pool(threads, {}, kDefaultSpinNs, &scheduler);
    struct Seen {
      std::atomic<int> hits[256] = {};
      std::atomic<bool> began{false};
    } seen;
    std::atomic<bool> done{false};
    std::thread low([&] {
      const Cancel cancel;
      ScheduledRun run(scheduler, {0}, nullptr, cancel);
      run.enter();
      pool.parallel_for(
          256, 1,
          [](void* context, int, std::int64_t begin, std::int64_t) {
            auto& s = *static_cast<Seen*>(context);
            ++s.hits[begin];
            s.began = true;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          },
          &seen, &run);
      done = true;
    });
    ASSERT_TRUE(eventually([&] { return seen.began.load(); }));
    for (int i = 0; i < 5; ++i) {
      const Cancel cancel;
      ScheduledRun run(scheduler, {1}, nullptr, cancel);
      run.enter();
      std::atomic<int> ranges{0};
      pool.parallel_for(
          32, 1, [](void* context, int, std::int64_t, std::int64_t) { ++*static_cast<std::atomic<int>*>(context); }, &ranges, &run);
      EXPECT_EQ(ranges, 32);
    }
    low.join();
    EXPECT_TRUE(done);
    for (const auto& h : seen.hits) EXPECT_EQ(h, 1);
    EXPECT_EQ(scheduler.idle_cores(), threads);
  }
}

TEST(RunScheduler, AForkedChildIsHeldUpByNobody) {
  RunScheduler scheduler(1);
  Worker first(scheduler, {});
  ASSERT_TRUE(eventually([&] { return first.computes(); }));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Cancel cancel;
    {
      ScheduledRun run(scheduler, {}, nullptr, cancel);
      run.enter();
    }
    _exit(7);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

}  // namespace
}  // namespace evn
