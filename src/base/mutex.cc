#include "base/mutex.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/os/fork.h"
#include "base/os/futex.h"
#include "base/os/os.h"
#include "base/scheduling_constants.h"

namespace evn {
namespace {

constexpr std::uint32_t kLocked = 1;
constexpr std::uint32_t kSleeper = 2;
constexpr int kGenerationShift = 2;

std::uint32_t locked_now() noexcept { return os::fork_generation() << kGenerationShift | kLocked; }

}  // namespace

WaitEnd::WaitEnd(std::uint64_t time_ns) noexcept : end_ns_(UINT64_MAX) {
  if (time_ns == UINT64_MAX) return;
  const std::uint64_t now = os::now_ns();
  if (time_ns < UINT64_MAX - now) end_ns_ = now + time_ns;
}

std::uint64_t WaitEnd::left_ns() const noexcept {
  if (end_ns_ == UINT64_MAX) return UINT64_MAX;
  const std::uint64_t now = os::now_ns();
  return end_ns_ > now ? end_ns_ - now : 0;
}

bool Mutex::try_lock() noexcept {
  std::uint32_t free = 0;
  if (!word_.compare_exchange_strong(free, locked_now(), std::memory_order_acquire, std::memory_order_relaxed)) return false;
  owner_.store(os::this_thread(), std::memory_order_relaxed);
  return true;
}

Mutex::Outcome Mutex::lock_slowly(std::uint64_t timeout_ns) noexcept {
  const std::uint32_t mine = locked_now();
  const WaitEnd end(timeout_ns);
  while (true) {
    std::uint32_t v = word_.load(std::memory_order_relaxed);
    if (v == 0) {
      if (!word_.compare_exchange_weak(v, mine | kSleeper, std::memory_order_acquire, std::memory_order_relaxed)) continue;
      owner_.store(os::this_thread(), std::memory_order_relaxed);
      return Outcome::kLocked;
    }
    const bool from_parent = (v ^ mine) >> kGenerationShift != 0;
    if (from_parent && owner_.load(std::memory_order_relaxed) != os::forking_thread()) return Outcome::kForked;
    const std::uint64_t left = end.left_ns();
    if (left == 0) return Outcome::kTimedOut;
    if ((v & kSleeper) == 0 && !word_.compare_exchange_weak(v, v | kSleeper, std::memory_order_relaxed)) continue;
    os::futex_wait_for(os::futex_word(word_), v | kSleeper, left);
  }
}

bool Mutex::try_lock_for(std::uint64_t timeout_ns) {
  if (try_lock()) return true;
  const Outcome outcome = lock_slowly(timeout_ns);
  if (outcome == Outcome::kForked) fail_forked();
  return outcome == Outcome::kLocked;
}

void Mutex::unlock() noexcept {
  owner_.store(nullptr, std::memory_order_relaxed);
  if ((word_.exchange(0, std::memory_order_release) & kSleeper) != 0) os::futex_wake_one(os::futex_word(word_));
}

void Mutex::fail_forked() {
  fail(EVN_ERROR_FORKED, "another thread was using this when the process forked, and the child does not have that thread");
}

std::unique_lock<Mutex> lock_or_stop(Mutex& mutex, const Cancel* cancel) {
  while (!mutex.try_lock_for(cancel != nullptr ? scheduling::kWatchIntervalNs : UINT64_MAX)) {
    if (cancel->stop()) cancel->fail();
  }
  return {mutex, std::adopt_lock};
}

void Condition::notify_one() noexcept {
  number_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) os::futex_wake_one(os::futex_word(number_));
}

void Condition::notify_all() noexcept {
  number_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) os::futex_wake_all(os::futex_word(number_));
}

std::uint32_t Condition::begin_sleep() noexcept {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  return number_.load(std::memory_order_seq_cst);
}

void Condition::end_sleep(std::uint32_t seen, std::uint64_t timeout_ns) noexcept {
  os::futex_wait_for(os::futex_word(number_), seen, timeout_ns);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace evn
