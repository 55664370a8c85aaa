#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>

#include "base/error.h"
#include "base/fault.h"
#include "base/os/os.h"

namespace evn::os {
namespace {

TEST(Thread, RunsItsBodyAndIsJoinedAtItsEnd) {
  int value = 0;
  {
    Thread t([](void* p) { *static_cast<int*>(p) = 7; }, &value);
  }
  EXPECT_EQ(value, 7);
}

TEST(Thread, BlocksAllSignalsButFaultsInItselfOnly) {
  sigset_t before, inside, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    Thread t([](void* p) { ::pthread_sigmask(SIG_SETMASK, nullptr, static_cast<sigset_t*>(p)); }, &inside);
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGALRM, SIGCHLD, SIGTERM, SIGUSR1, SIGPIPE}) {
    EXPECT_EQ(::sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(::sigismember(&after, signal), ::sigismember(&before, signal)) << signal;
  }
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) EXPECT_EQ(::sigismember(&inside, fault), 0) << fault;
}

TEST(Thread, ARefusedThreadIsAnError) {
  fault_arm(Seam::kThread, 1, false);
  try {
    Thread t([](void*) {}, nullptr);
    ADD_FAILURE() << "the seam was passed by";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, EVN_ERROR_NO_THREADS);
  }
  fault_arm(Seam::kThread, 0, false);
}

TEST(Thread, MayBeMoved) {
  std::atomic<int> runs{0};
  {
    Thread a([](void* p) { ++*static_cast<std::atomic<int>*>(p); }, &runs);
    Thread b(std::move(a));
  }
  EXPECT_EQ(runs, 1);
}

TEST(Cores, AThreadThatLeavesItsCoreMayStillUseAll) {
  const int usable = usable_cores();
  const int before = current_core();
  leave_core();
  EXPECT_EQ(usable_cores(), usable);
  if (usable < 2 || before < 0) GTEST_SKIP() << "needs two cores";
  bool left = current_core() != before;
  for (int i = 0; i < 1000 && !left; ++i) {  // the scheduler may have brought it back
    const int core = current_core();
    leave_core();
    left = current_core() != core;
  }
  EXPECT_TRUE(left);
}

TEST(Futex, WaitReturnsAtOnceWhenTheWordDiffers) {
  const std::uint32_t word = 1;
  futex_wait(&word, 0);
  SUCCEED();
}

TEST(Futex, WakeEndsAWait) {
  struct Shared {
    std::uint32_t word = 0;
    std::atomic<bool> woken{false};
  } shared;
  {
    Thread t(
        [](void* p) {
          auto& s = *static_cast<Shared*>(p);
          while (std::atomic_ref(s.word).load() == 0) futex_wait(&s.word, 0);
          s.woken = true;
        },
        &shared);
    std::atomic_ref(shared.word).store(1);
    futex_wake_all(&shared.word);
  }
  EXPECT_TRUE(shared.woken);
}

TEST(System, CoresAndMemoryAreThere) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GT(physical_memory_bytes(), 1u << 20);
}

TEST(System, TheClockDoesNotGoBack) {
  const std::uint64_t a = now_ns();
  const std::uint64_t b = now_ns();
  EXPECT_GE(b, a);
  EXPECT_GT(a, 0u);
}

TEST(System, EnvironmentGivesSetAndUnset) {
  ::setenv("EVN_TEST_VARIABLE", "text", 1);
  EXPECT_EQ(environment("EVN_TEST_VARIABLE"), "text");
  ::unsetenv("EVN_TEST_VARIABLE");
  EXPECT_EQ(environment("EVN_TEST_VARIABLE"), "");
}

TEST(System, LibrariesOpenOrSayWhyNot) {
  std::string why;
  EXPECT_EQ(open_library("libevn-there-is-none.so.9", &why), nullptr);
  EXPECT_NE(why.find("libevn-there-is-none"), std::string::npos);
  void* library = open_library("libm.so.6", &why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_NE(find_symbol(library, "cos"), nullptr);
  EXPECT_EQ(find_symbol(library, "evn_no_such_symbol"), nullptr);
  close_library(library);
  close_library(nullptr);
}

}  // namespace
}  // namespace evn::os
