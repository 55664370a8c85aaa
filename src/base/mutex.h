// Locks that a forked child never waits for in vain. docs/decisions/0062-forked-children.md
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

namespace evn {

struct Cancel;

// Time at which a wait ends.
class WaitEnd {
 public:
  // UINT64_MAX: never.
  explicit WaitEnd(std::uint64_t time_ns) noexcept;
  // Returns 0 when the wait is over, and UINT64_MAX if it has no end.
  std::uint64_t left_ns() const noexcept;

 private:
  std::uint64_t end_ns_;
};

// Like std::mutex, but a thread that a fork has left behind does not keep it: in the child, lock() throws EVN_ERROR_FORKED where
// such a thread had it at the fork, as what the mutex guards may be half changed. The thread that forked keeps what it has.
class Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    if (!lock_if_alive()) fail_forked();
  }
  // False, and it is not locked, where lock() throws.
  bool lock_if_alive() noexcept { return try_lock() || lock_slowly(UINT64_MAX) == Outcome::kLocked; }
  bool try_lock() noexcept;
  // Returns false if another thread still has it after that time. Throws like lock().
  bool try_lock_for(std::uint64_t timeout_ns);
  void unlock() noexcept;

 private:
  enum class Outcome { kLocked, kTimedOut, kForked };
  Outcome lock_slowly(std::uint64_t timeout_ns) noexcept;
  [[noreturn]] static void fail_forked();

  std::atomic<std::uint32_t> word_{0};  // 0: free; else the generation of the process << 2 | somebody sleeps << 1 | 1
  std::atomic<const void*> owner_{nullptr};
};

// Locks the mutex for a thread whose work obeys `cancel` (nullable): throws its Error if that says stop while another thread has
// the mutex. Throws like lock(), too.
std::unique_lock<Mutex> lock_or_stop(Mutex& mutex, const Cancel* cancel);

// For who must not throw, and goes on without the lock where a thread that is no more has it: nobody else is there then.
class LockIfAlive {
 public:
  explicit LockIfAlive(Mutex& mutex) noexcept : mutex_(mutex.lock_if_alive() ? &mutex : nullptr) {}
  ~LockIfAlive() {
    if (mutex_ != nullptr) mutex_->unlock();
  }
  LockIfAlive(const LockIfAlive&) = delete;
  LockIfAlive& operator=(const LockIfAlive&) = delete;

 private:
  Mutex* const mutex_;
};

// Like std::condition_variable, for either kind of mutex. A child may destroy one on which threads of its parent slept; that of the
// standard library would wait for them.
class Condition {
 public:
  constexpr Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_one() noexcept;
  void notify_all() noexcept;

  template <typename Lock>
  void wait(Lock& lock) {
    sleep(lock, UINT64_MAX);
  }
  template <typename Lock, typename Done>
  void wait(Lock& lock, Done done) {
    while (!done()) sleep(lock, UINT64_MAX);
  }
  template <typename Lock>
  void wait_for(Lock& lock, std::chrono::nanoseconds time) {
    sleep(lock, static_cast<std::uint64_t>(time.count()));
  }
  // What done() says in the end.
  template <typename Lock, typename Done>
  bool wait_for(Lock& lock, std::chrono::nanoseconds time, Done done) {
    const WaitEnd end(static_cast<std::uint64_t>(time.count()));
    while (!done()) {
      const std::uint64_t left = end.left_ns();
      if (left == 0) return done();
      sleep(lock, left);
    }
    return true;
  }

 private:
  template <typename Lock>
  void sleep(Lock& lock, std::uint64_t timeout_ns) {
    const std::uint32_t seen = begin_sleep();
    lock.unlock();
    end_sleep(seen, timeout_ns);
    lock.lock();
  }
  std::uint32_t begin_sleep() noexcept;
  void end_sleep(std::uint32_t seen, std::uint64_t timeout_ns) noexcept;

  std::atomic<std::uint32_t> number_{0};  // grows with each notification
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace evn
