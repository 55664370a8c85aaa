// Locks and conditions, in one process and over forks.
#include "base/mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/error.h"
#include "base/os/fork.h"

namespace evn::test {
namespace {

bool in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits in vain is killed
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

evn_status status_of_lock(Mutex& mutex) {
  try {
    const std::lock_guard<Mutex> lock(mutex);
    return EVN_OK;
  } catch (const Error& e) {
    return e.status;
  }
}

// Another thread that has a lock until it is told to let go.
template <typename Lock>
class Holder {
 public:
  explicit Holder(Lock& lock) {
    thread_ = std::thread([this, &lock] {
      const std::lock_guard<Lock> held(lock);
      has_ = true;
      while (!end_) std::this_thread::yield();
    });
    while (!has_) std::this_thread::yield();
  }
  ~Holder() {
    end_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> has_{false}, end_{false};
  std::thread thread_;
};

TEST(Mutex, OneThreadAtATime) {
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const std::lock_guard<Mutex> lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(count, 40'000);
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
}

TEST(Mutex, AWaitWithATimeOutEndsThoughAnotherHasIt) {
  Mutex mutex;
  {
    const Holder<Mutex> other(mutex);
    EXPECT_FALSE(mutex.try_lock_for(0));
    EXPECT_FALSE(mutex.try_lock_for(1'000'000));
    EXPECT_TRUE(in_child([&] { EXPECT_THROW(mutex.try_lock_for(1'000'000), Error); }));
  }
  ASSERT_TRUE(mutex.try_lock_for(0));
  std::thread other([&] {
    EXPECT_TRUE(mutex.try_lock_for(UINT64_MAX));
    mutex.unlock();
  });
  mutex.unlock();
  other.join();
}

TEST(Mutex, AWaitEndsWhenTheWorkMustStop) {
  Mutex mutex;
  const std::atomic<bool> requested{true};
  Cancel requests, late;
  requests.requested = &requested;
  late.deadline_ns = 1;
  const auto status_with = [&](const Cancel& cancel) -> evn_status {
    try {
      const std::unique_lock<Mutex> lock = lock_or_stop(mutex, &cancel);
      return lock.owns_lock() ? EVN_OK : EVN_ERROR_INTERNAL;
    } catch (const Error& e) {
      return e.status;
    }
  };
  {
    const Holder<Mutex> other(mutex);
    EXPECT_EQ(status_with(requests), EVN_ERROR_CANCELLED);
    EXPECT_EQ(status_with(late), EVN_ERROR_TIMEOUT);
  }
  EXPECT_EQ(status_with(late), EVN_OK);  // nobody has it
  EXPECT_TRUE(lock_or_stop(mutex, nullptr).owns_lock());
  EXPECT_TRUE(mutex.try_lock()) << "it was let go";
  mutex.unlock();
}

TEST(Mutex, ConditionsWakeWhoWaits) {
  Mutex mutex;
  Condition changed;
  int turn = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        std::unique_lock<Mutex> lock(mutex);
        changed.wait(lock, [&] { return turn % 4 == t; });
        ++turn;
        changed.notify_all();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(turn, 2000);
  std::unique_lock<Mutex> lock(mutex);
  EXPECT_FALSE(changed.wait_for(lock, std::chrono::nanoseconds(1000), [] { return false; }));
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::nanoseconds(0), [] { return true; }));
}

TEST(Mutex, AChildDoesNotWaitForAThreadThatItDoesNotHave) {
  Mutex mutex, free;
  Holder<Mutex> holder(mutex);
  EXPECT_TRUE(in_child([&] {
    EXPECT_EQ(status_of_lock(mutex), EVN_ERROR_FORKED);
    EXPECT_FALSE(mutex.try_lock());
    EXPECT_FALSE(mutex.lock_if_alive());
    { const LockIfAlive lock(mutex); }
    EXPECT_EQ(status_of_lock(free), EVN_OK);
    EXPECT_TRUE(in_child([&] { EXPECT_EQ(status_of_lock(mutex), EVN_ERROR_FORKED); }));
  }));
}

TEST(Mutex, WhoForksKeepsItsLocksInTheChild) {
  Mutex mutex;
  mutex.lock();
  EXPECT_TRUE(in_child([&] {
    std::atomic<int> got{-1};
    std::thread other([&] { got = status_of_lock(mutex); });  // waits as in any process
    std::this_thread::yield();
    EXPECT_EQ(got, -1);
    mutex.unlock();
    other.join();
    EXPECT_EQ(got, EVN_OK);
    EXPECT_EQ(status_of_lock(mutex), EVN_OK);
  }));
  mutex.unlock();
}

TEST(Mutex, ALockOfTheChildsIsHeldThere) {
  Mutex mutex;
  EXPECT_TRUE(in_child([&] {
    Holder<Mutex> holder(mutex);
    EXPECT_FALSE(mutex.try_lock());
    EXPECT_TRUE(in_child([&] { EXPECT_EQ(status_of_lock(mutex), EVN_ERROR_FORKED); }));
  }));
  EXPECT_EQ(status_of_lock(mutex), EVN_OK);
}

TEST(Mutex, AChildMayDestroyWhatOthersSleptOn) {
  Mutex mutex;
  auto condition = std::make_unique<Condition>();
  bool end = false;
  std::atomic<int> asleep{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::unique_lock<Mutex> lock(mutex);
      ++asleep;
      condition->wait(lock, [&] { return end; });
    });
  }
  while (asleep != 3) std::this_thread::yield();
  { const std::lock_guard<Mutex> all_sleep(mutex); }
  EXPECT_TRUE(in_child([&] {
    condition->notify_one();
    condition->notify_all();
    condition.reset();
  }));
  {
    const std::lock_guard<Mutex> lock(mutex);
    end = true;
    condition->notify_all();
  }
  for (std::thread& t : threads) t.join();
}

TEST(HeldOverForks, AMutexIsFreeInTheChildWhateverOthersDo) {
  std::mutex mutex;
  const os::HeldOverForks held(mutex);
  int a = 0, b = 0;  // equal where the mutex is free
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        const std::lock_guard<std::mutex> lock(mutex);
        ++a;
        ++b;
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(in_child([&] {
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_EQ(a, b);
    }));
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}

TEST(HeldOverForks, AForkDoesNotWaitForEver) {
  std::mutex mutex;
  os::hold_over_forks(mutex);
  {
    Holder<std::mutex> holder(mutex);
    EXPECT_TRUE(in_child([&] { const std::lock_guard<std::mutex> lock(mutex); }));
  }
  {
    const std::lock_guard<std::mutex> own(mutex);
    EXPECT_TRUE(in_child([&] { EXPECT_TRUE(mutex.try_lock()); }));
  }
  os::let_go_over_forks(mutex);
}

TEST(Fork, GenerationsGrowInChildren) {
  const std::uint32_t here = os::fork_generation();
  EXPECT_TRUE(in_child([&] {
    EXPECT_EQ(os::fork_generation(), here + 1);
    EXPECT_EQ(os::forking_thread(), os::this_thread());
    EXPECT_TRUE(in_child([&] { EXPECT_EQ(os::fork_generation(), here + 2); }));
  }));
  EXPECT_EQ(os::fork_generation(), here);
}

}  // namespace
}  // namespace evn::test
