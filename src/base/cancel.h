// When work must stop, and how long loops find out: the deadline or request that a thread's work obeys, and the points at which
// loops say how much they have done. docs/decisions/0043-cancellation-points.md
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/test_access.h"

namespace evn {

// What deadlines are measured by: os::now_ns().
class DeadlineClock {
 public:
  static std::uint64_t now_ns() noexcept { return clock_.load(std::memory_order_relaxed)(); }

 private:
  friend struct test::Access<DeadlineClock>;
  static std::atomic<std::uint64_t (*)()> clock_;
};
inline std::uint64_t deadline_clock_ns() noexcept { return DeadlineClock::now_ns(); }

// What asks work to stop: set once, from any thread.
struct CancelToken {
  std::atomic<bool> requested{false};
};

// When a caller wants its work to stop.
struct StopCondition {
  std::uint64_t deadline_ns = 0;                 // deadline_clock_ns(); 0: none
  const std::atomic<bool>* requested = nullptr;  // true once somebody has asked; the caller keeps it. nullptr: nobody can ask

  // Whether it may ever stop the work.
  bool exists() const { return deadline_ns != 0 || requested != nullptr; }
  // Also stops where the other would.
  void join(const StopCondition& other) {
    if (other.deadline_ns != 0 && (deadline_ns == 0 || other.deadline_ns < deadline_ns)) deadline_ns = other.deadline_ns;
    if (requested == nullptr) requested = other.requested;
  }
  // Also stops after that time. 0 and UINT64_MAX: no limit.
  void join_timeout(std::uint64_t timeout_ns) {
    if (timeout_ns == 0 || timeout_ns == UINT64_MAX) return;
    const std::uint64_t now = deadline_clock_ns();
    join({timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX, nullptr});
  }
  bool is_requested() const { return requested != nullptr && requested->load(std::memory_order_relaxed); }
};

// Says when work must stop. Optimized kernels look at it between pieces of a tile and return; all else has cancellation points.
struct Cancel : StopCondition {
  const char* over = "the run's time is over";      // message of the Error after the deadline
  const char* cancelled = "the run was cancelled";  // and of the one that was asked for
  bool stop() const { return is_requested() || (deadline_ns != 0 && deadline_clock_ns() >= deadline_ns); }
  // The Error of what has been stopped: EVN_ERROR_CANCELLED when that was requested, otherwise EVN_ERROR_TIMEOUT.
  [[noreturn]] void fail() const;
};

// Units of work between two looks at the clock. A unit is a multiply-add, a comparison or an element that is moved, none of which
// takes more than some 100 ns where every access misses all caches; what takes longer counts for more.
inline constexpr std::int64_t kWorkPerLook = 8192;
// Work of a function like exp, pow or erf.
inline constexpr std::int64_t kFunctionWork = 4;
// Work of a node that a loop over a graph looks at.
inline constexpr std::int64_t kNodeWork = 64;
// Bytes in a row that are copied, hashed or compared for one unit.
inline constexpr std::int64_t kBytesPerWork = 64;

// While it lives, the calling thread's cancellation points obey `cancel`, and not those of scopes around it. Not more than `limit`
// units may be done in it: then a point throws EVN_ERROR_LIMIT, and is_spent() is true.
class CancelScope {
 public:
  static constexpr std::int64_t kNoLimit = INT64_MAX;
  explicit CancelScope(const Cancel& cancel, std::int64_t limit = kNoLimit) noexcept;
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  // What the calling thread's cancellation points obey now; null: nothing.
  static const Cancel* current() noexcept;

  bool is_spent() const { return spent_; }
  // Units that were done in it, those of scopes inside it included.
  std::int64_t work() const noexcept;
  // The most that was done between two looks; no more than 2 * kWorkPerLook where no loop does more than kWorkPerLook between two
  // points.
  std::int64_t longest() const { return longest_; }

 private:
  friend struct WorkMeter;

  const Cancel& cancel_;
  const std::int64_t limit_;
  CancelScope* const outer_;
  const std::int64_t outer_left_;
  const std::int64_t outer_granted_;
  std::int64_t work_ = 0;  // up to the last look
  std::int64_t longest_ = 0;
  bool spent_ = false;
};

// A thread's work since it last looked.
struct WorkMeter {
  std::int64_t left = kWorkPerLook;     // until it looks again
  std::int64_t granted = kWorkPerLook;  // what `left` began with
  CancelScope* scope = nullptr;

  [[gnu::cold, gnu::noinline]] void look();
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local WorkMeter t_work_meter;

// To be called by every loop whose length a model or a caller decides: `work` units are about to be done, no more than
// kWorkPerLook. Looks at the clock when so many have been done since the last look, and throws the Error of the scope's Cancel when
// it must stop.
inline void cancellation_point(std::int64_t work = 1) {
  if ((t_work_meter.left -= work) < 0) [[unlikely]]
    t_work_meter.look();
}

// Calls f(begin, end) for pieces of [0, count) with a point before each; `work`: units for one of count.
template <typename F>
void in_pieces(std::int64_t count, std::int64_t work, F&& f) {
  const std::int64_t piece = work >= kWorkPerLook / 4 ? 1 : kWorkPerLook / 4 / (work > 0 ? work : 1);
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t end = count - begin < piece ? count : begin + piece;
    cancellation_point((end - begin) * work);
    f(begin, end);
  }
}

// memmove and memset with points between pieces; memory may overlap as for memmove.
void move_in_pieces(void* to, const void* from, std::uint64_t size);
void fill_in_pieces(void* to, int byte, std::uint64_t size);

// memcpy likewise, at once where it is short.
void copy_block(void* to, const void* from, std::int64_t size);

// std::fill_n and std::copy_n likewise; `to` and `from` do not overlap.
template <typename T>
void fill_in_pieces(T* to, std::int64_t count, const T& value) {
  in_pieces(count, 1, [&](std::int64_t begin, std::int64_t end) { std::fill(to + begin, to + end, value); });
}
template <typename From, typename To>
void copy_in_pieces(const From* from, std::int64_t count, To* to) {
  in_pieces(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<To>(from[i]);
  });
}

}  // namespace evn
