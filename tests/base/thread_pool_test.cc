// The thread pool: coverage of ranges, thread numbers, exceptions, failing thread starts, nesting, concurrent callers, fork.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fault.h"
#include "base/os/os.h"

namespace evn {
namespace {

struct Cover {
  std::vector<std::atomic<int>> hits;
  std::vector<std::atomic<int>> inside;  // per thread: calls in progress
  std::atomic<int> clashes{0};
  std::int64_t grain;
  Cover(std::int64_t count, int threads, std::int64_t g)
      : hits(static_cast<std::size_t>(count)), inside(static_cast<std::size_t>(threads)), grain(g) {}

  static void body(void* context, int thread, std::int64_t begin, std::int64_t end) {
    auto& c = *static_cast<Cover*>(context);
    if (thread < 0 || static_cast<std::size_t>(thread) >= c.inside.size() || end - begin > c.grain || begin >= end) {
      ++c.clashes;
      return;
    }
    if (c.inside[static_cast<std::size_t>(thread)]++ != 0) ++c.clashes;
    for (std::int64_t i = begin; i < end; ++i) ++c.hits[static_cast<std::size_t>(i)];
    --c.inside[static_cast<std::size_t>(thread)];
  }
  bool each_once() const {
    for (const auto& h : hits) {
      if (h != 1) return false;
    }
    return clashes == 0;
  }
};

TEST(ThreadPool, CoversEveryIndexOnceForAllCountsAndGrains) {
  for (int threads = 1; threads <= 5; ++threads) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      for (std::int64_t grain : {1, 2, 3, 64, 5000}) {
        Cover c(count, threads, grain);
        pool.parallel_for(count, grain, &Cover::body, &c);
        EXPECT_TRUE(c.each_once()) << threads << " threads, count " << count << ", grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, CoversEveryIndexOnceWhereThreadsSleepAtOnce) {
  ThreadPool pool(4, {}, 0);
  for (int i = 0; i < 2000; ++i) {
    Cover c(9, 4, 1);
    pool.parallel_for(9, 1, &Cover::body, &c);
    ASSERT_TRUE(c.each_once()) << i;
  }
}

// The states of this process's other threads, as the kernel tells them.
bool all_others_sleep() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(getpid())) continue;
    std::string text;
    std::getline(std::ifstream(entry.path() / "stat"), text);
    const std::size_t name_end = text.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= text.size() || text[name_end + 2] != 'S') return false;
  }
  return true;
}

TEST(ThreadPool, SleepsWhenThereIsNothingToDo) {
  ThreadPool pool(4);
  for (int i = 0; i < 100; ++i) {
    Cover c(64, 4, 1);
    pool.parallel_for(64, 1, &Cover::body, &c);
  }
  int looks = 0;
  while (!all_others_sleep() && looks < 10'000) {
    ++looks;
    usleep(1000);
  }
  EXPECT_LT(looks, 10'000);
}

// What the host does after a run has the cores to itself: the processor time of all threads is looked at while this one sleeps.
TEST(ThreadPool, LeavesTheCoresToTheHostBetweenJobs) {
  ThreadPool pool(4);
  const auto processor_ns = [] {
    timespec t;
    EXPECT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return t.tv_sec * 1'000'000'000l + t.tv_nsec;
  };
  long least = LONG_MAX;
  for (int pause = 0; pause < 20; ++pause) {  // the least of many: a sanitizer or a busy machine may add to some
    for (int i = 0; i < 100; ++i) {           // jobs that come often
      Cover c(64, 4, 1);
      pool.parallel_for(64, 1, &Cover::body, &c);
    }
    const long before = processor_ns();
    usleep(20'000);
    least = std::min(least, processor_ns() - before);
  }
  EXPECT_LT(least, 3'000'000);  // three threads, each for a long look of 0.24 ms, of the 60 ms that they might take
}

TEST(ThreadPool, HoldsOverManyJobs) {
  ThreadPool pool(4);
  for (int i = 0; i < 5000; ++i) {
    Cover c(9, 4, 1);
    pool.parallel_for(9, 1, &Cover::body, &c);
    ASSERT_TRUE(c.each_once()) << "job " << i;
  }
}

// Work, not sleep: threads that sleep may share a core for ever.
void compute_for(std::chrono::microseconds time) {
  const std::uint64_t end = os::now_ns() + static_cast<std::uint64_t>(time.count()) * 1000;
  while (os::now_ns() < end) {}
}

// A worker takes no part while it has no core of its own, which on a busy machine may be long.
class Patience {
 public:
  bool left() const { return os::now_ns() < end_; }

 private:
  std::uint64_t end_ = os::now_ns() + 100'000'000'000;
};

// Threads that can all be on cores of their own; a worker on the caller's core takes no part.
int parallel_threads(int most) { return std::min(most, os::usable_cores()); }

TEST(ThreadPool, AllThreadsTakePart) {
  const int threads = parallel_threads(3);
  ThreadPool pool(threads);
  std::atomic<int> calls[3] = {};
  const auto all = [&] { return std::all_of(calls, calls + threads, [](const std::atomic<int>& n) { return n > 0; }); };
  const Patience patience;
  while (patience.left() && !all()) {
    pool.parallel_for(
        16, 1,
        [](void* context, int thread, std::int64_t, std::int64_t) {
          ++static_cast<std::atomic<int>*>(context)[thread];
          compute_for(std::chrono::microseconds(100));
        },
        calls);
  }
  EXPECT_TRUE(all());
}

TEST(ThreadPool, EachThreadBeginsWithTheSamePartOfEveryJob) {
  const int threads = parallel_threads(4);
  ThreadPool pool(threads);
  struct Begins {
    std::atomic<std::int64_t> first[4];
  };
  // A thread that comes when its share has been done by others begins with one of another's, or not at all.
  int began[4] = {};
  const auto enough = [&] { return std::all_of(began, began + threads, [](int n) { return n > 0; }); };
  const Patience patience;
  while (patience.left() && !enough()) {
    Begins b;
    for (auto& f : b.first) f = -1;
    pool.parallel_for(
        10 * threads, 1,
        [](void* context, int thread, std::int64_t begin, std::int64_t) {
          std::int64_t none = -1;
          static_cast<Begins*>(context)->first[thread].compare_exchange_strong(none, begin);
          compute_for(std::chrono::microseconds(20));
        },
        &b);
    for (int t = 0; t < threads; ++t) began[t] += b.first[t] == 10 * t ? 1 : 0;
  }
  EXPECT_TRUE(enough());
}

TEST(ThreadPool, AThreadThatWasKeptFromItsWorkIsLeftAloneForATime) {
  if (os::usable_cores() < 2) GTEST_SKIP() << "needs two cores";
  ThreadPool pool(2);
  struct Seen {
    std::atomic<int> by_worker{0};
    std::atomic<bool> stall{true};
  } s;
  const auto body = [](void* context, int thread, std::int64_t, std::int64_t) {
    auto& seen = *static_cast<Seen*>(context);
    if (thread != 0) ++seen.by_worker;
    if (seen.stall && thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!seen.stall) compute_for(std::chrono::microseconds(50));
  };
  int next_by_worker = 1;
  for (int attempt = 0; attempt < 5 && next_by_worker > 0;
       ++attempt) {  // again where the machine kept the caller from its own work
    s.stall = true;
    s.by_worker = 0;
    while (s.by_worker == 0) pool.parallel_for(2, 1, body, &s);
    s.stall = false;
    s.by_worker = 0;
    pool.parallel_for(64, 1, body, &s);
    next_by_worker = s.by_worker;
  }
  EXPECT_EQ(next_by_worker, 0);
  const Patience patience;
  while (patience.left() && s.by_worker == 0) pool.parallel_for(64, 1, body, &s);  // and then takes part again
  EXPECT_GT(s.by_worker, 0);
}

TEST(ThreadPool, TheShareOfAThreadThatStandsStillIsDoneByOthers) {
  ThreadPool pool(2);
  struct Still {
    std::atomic<int> done{0};
  } s;
  pool.parallel_for(
      64, 1,
      [](void* context, int, std::int64_t begin, std::int64_t) {
        auto& n = static_cast<Still*>(context)->done;
        ++n;
        if (begin == 32) {
          while (n != 64) std::this_thread::yield();
        }
      },
      &s);
  EXPECT_EQ(s.done, 64);
}

TEST(ThreadPool, NestedCallRunsInTheCaller) {
  ThreadPool pool(3);
  struct Outer {
    ThreadPool* pool;
    std::atomic<int> inner{0};
  } outer{&pool};
  pool.parallel_for(
      8, 1,
      [](void* context, int, std::int64_t, std::int64_t) {
        auto& o = *static_cast<Outer*>(context);
        Cover c(20, 1, 3);
        o.pool->parallel_for(20, 3, &Cover::body, &c);
        if (c.each_once()) ++o.inner;
      },
      &outer);
  EXPECT_EQ(outer.inner, 8);
}

TEST(ThreadPool, ConcurrentCallersAllFinish) {
  ThreadPool pool(3);
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        Cover c(17, 3, 2);
        pool.parallel_for(17, 2, &Cover::body, &c);
        if (c.each_once()) ++good;
      }
    });
  }
  for (auto& t : callers) t.join();
  EXPECT_EQ(good, 4 * 500);
}

TEST(ThreadPool, FirstErrorIsRethrownAndThePoolStaysUsable) {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      try {
        pool.parallel_for(
            100, 1,
            [](void*, int, std::int64_t begin, std::int64_t) {
              if (begin == 37) fail(EVN_ERROR_LIMIT, "tile 37");
            },
            nullptr);
        FAIL() << "nothing was thrown";
      } catch (const Error& e) {
        EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
        EXPECT_STREQ(e.message, "tile 37");
      }
      Cover c(10, threads, 1);
      pool.parallel_for(10, 1, &Cover::body, &c);
      EXPECT_TRUE(c.each_once());
    }
  }
}

TEST(ThreadPool, BadAllocIsRethrownAsBadAlloc) {
  ThreadPool pool(2);
  const auto body = [](void*, int, std::int64_t, std::int64_t) { throw std::bad_alloc(); };
  EXPECT_THROW(pool.parallel_for(4, 1, body, nullptr), std::bad_alloc);
}

TEST(ThreadPool, RangesAfterAnErrorAreSkipped) {
  ThreadPool pool(1);
  std::atomic<int> calls{0};
  const auto body = [](void* context, int, std::int64_t, std::int64_t) {
    ++*static_cast<std::atomic<int>*>(context);
    fail(EVN_ERROR_LIMIT, "stop");
  };
  EXPECT_THROW(pool.parallel_for(1000, 1, body, &calls), Error);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, EveryFailingThreadStartIsReportedAndLeavesNoThread) {
  for (int k = 1; k <= 3; ++k) {
    ThreadPool pool(4);
    Cover c(50, 4, 1);
    fault_arm(Seam::kThread, k, false);
    try {
      pool.parallel_for(50, 1, &Cover::body, &c);
      ADD_FAILURE() << "start " << k << " did not fail";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, EVN_ERROR_NO_THREADS);
    }
    fault_arm(Seam::kThread, 0, false);
    for (const auto& h : c.hits) EXPECT_EQ(h, 0);
    pool.parallel_for(50, 1, &Cover::body, &c);
    EXPECT_TRUE(c.each_once()) << "after failing start " << k;
  }
}

TEST(ThreadPool, OneThreadStartsNone) {
  ThreadPool pool(1);
  fault_arm(Seam::kThread, 1, true);
  Cover c(50, 1, 1);
  pool.parallel_for(50, 1, &Cover::body, &c);
  fault_arm(Seam::kThread, 0, false);
  EXPECT_TRUE(c.each_once());
}

TEST(ThreadPool, ForkedChildRunsAloneAndEnds) {
  ThreadPool pool(3);
  Cover before(20, 3, 1);
  pool.parallel_for(20, 1, &Cover::body, &before);
  ASSERT_TRUE(before.each_once());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool ok = true;
    for (int i = 0; i < 10; ++i) {
      Cover c(20, 3, 1);
      pool.parallel_for(20, 1, &Cover::body, &c);
      ok = ok && c.each_once();
    }
    pool.~ThreadPool();
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void run_backwards(void* user, std::uint32_t count, evn_task task, void* context) {
  ++*static_cast<int*>(user);
  for (std::uint32_t i = count; i-- > 0;) task(context, i);
}

TEST(ThreadPool, AHostsExecutorCoversEveryIndexOnceAndStartsNoThread) {
  fault_count_reset(Seam::kThread);
  for (int threads : {1, 2, 5, 100}) {
    int jobs = 0;
    ThreadPool pool(threads, {&run_backwards, &jobs});
    for (std::int64_t count : {0, 1, 2, 7, 1000}) {
      Cover c(count, threads, 3);
      pool.parallel_for(count, 3, &Cover::body, &c);
      EXPECT_TRUE(c.each_once()) << threads << " threads, count " << count;
    }
    EXPECT_EQ(jobs, threads == 1 ? 0 : 2);  // 7 and 1000 are more than one range
  }
  EXPECT_EQ(fault_count(Seam::kThread), 0);
}

TEST(ThreadPool, WhatABodyThrowsInAHostsExecutorReachesTheCaller) {
  int jobs = 0;
  ThreadPool pool(4, {&run_backwards, &jobs});
  const auto body = [](void*, int, std::int64_t begin, std::int64_t) {
    if (begin == 5) fail(EVN_ERROR_LIMIT, "five");
  };
  try {
    pool.parallel_for(9, 1, body, nullptr);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_LIMIT);
  }
  Cover c(9, 4, 1);
  pool.parallel_for(9, 1, &Cover::body, &c);
  EXPECT_TRUE(c.each_once());
}

}  // namespace
}  // namespace evn
