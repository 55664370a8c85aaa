// The requests of one session: those that wait, by urgency, and how many have not ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "runtime/objects/run_statistics.h"

namespace evn {

struct Gathering;
class Request;
using RequestPtr = std::shared_ptr<Request>;

class SessionRequests {
 private:
  // The earliest deadline comes first, then the first request to come.
  struct Earlier {
    using is_transparent = void;
    bool operator()(const RequestPtr& a, const RequestPtr& b) const { return comes_before(*a, *b); }
    bool operator()(const RequestPtr& a, const Request* b) const { return comes_before(*a, *b); }
    bool operator()(const Request* a, const RequestPtr& b) const { return comes_before(*a, *b); }
  };
  static bool comes_before(const Request& a, const Request& b);
  using Queue = std::set<RequestPtr, Earlier>;

 public:
  // `most_running`: that are executed at a time; 0: no bound.
  explicit SessionRequests(int most_running) : most_running_(most_running) {}

  // -- Guarded by the dispatcher's mutex ------------------------------------------------------------------------------------

  // Forgets what its parent's dispatcher noted, in a child. Throws as require_not_forked does.
  void begin_in_child();
  // Takes a request; throws std::bad_alloc and is unchanged.
  void push(RequestPtr request);
  // How urgent the most urgent one is: more is more. INT64_MIN where none waits, or no more may be executed now.
  std::int64_t urgency(std::uint64_t now_ns) const;
  std::int32_t top_priority(std::uint64_t now_ns) const;
  // The most urgent one, which is executed from now on until done(). `prefer_feasible`: a request that is expected to miss its
  // deadline stays behind those with later deadlines that are expected to meet theirs. The watcher must end it at its deadline.
  RequestPtr pop(std::uint64_t now_ns, bool prefer_feasible);
  void done() { --running_; }
  // Moves requests that come behind `first`, which has been popped, and have its priority to `out`, in order, if `wants` returns
  // kTake. All are executed as one: done() is called once. Throws std::bad_alloc, and loses no request.
  enum class Wanted { kTake, kLeave, kEnd };
  template <typename F>
  void join(const RequestPtr& first, std::int32_t priority, std::vector<RequestPtr>* out, F&& wants) {
    constexpr int kMaxLeft = 32;
    Queue& queue = queue_of(priority);
    int left = 0;
    for (auto it = queue.upper_bound(first); it != queue.end() && left < kMaxLeft;) {
      out->reserve(out->size() + 1);
      const Wanted wanted = wants(*it);
      if (wanted == Wanted::kEnd) return;
      const auto at = it++;
      if (wanted == Wanted::kLeave) ++left;
      else out->push_back(take(queue, at));
    }
  }
  // Returns true if a limit on concurrent executions is set.
  bool is_bounded() const noexcept { return most_running_.load(std::memory_order_relaxed) != 0; }
  // Another bound, from now on. From any thread.
  void set_most_running(int most_running) noexcept { most_running_.store(most_running, std::memory_order_relaxed); }
  // Adds the time of a run of requests, one or several, of that size (Request::size_class()). From any thread.
  void add_run_time(std::size_t size_class, std::uint64_t duration_ns, bool completed) noexcept;
  static constexpr std::size_t kSizeClasses = 16;
  // How many are under way at a time while most of them wait for devices; 0: as many as execute. From any thread.
  void set_depth(int depth) noexcept { depth_.store(depth, std::memory_order_relaxed); }
  int depth() const noexcept { return depth_.load(std::memory_order_relaxed); }
  // The number of requests that have not ended.
  std::uint64_t in_flight();
  // Takes out one that has just been pushed. False: it is not there any more.
  bool remove(const Request* request) noexcept;
  // Appends those whose token or deadline says stop, which stay, and end elsewhere.
  void find_stopped(std::vector<RequestPtr>* out) const;
  // The earliest of the deadlines of those that wait (UINT64_MAX: none has one), and whether one has a token.
  void look_at_stops(std::uint64_t* deadline_ns, bool* tokens) const;
  bool is_empty() const { return waiting() == 0; }

  SessionRequests* next = nullptr;  // in the dispatcher's list of those in which requests wait
  bool listed = false;
  Gathering* gathering = nullptr;  // of the dispatcher: a thread that waits for requests to be joined with what it has

  // -- From any thread ------------------------------------------------------------------------------------------------------

  std::size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  const std::atomic<std::size_t>& waiting_count() const { return waiting_; }
  // Throws EVN_ERROR_FORKED in a child of a process in which requests were under way at the fork.
  void require_not_forked() const;
  // A request has come; it ends; it has told so. `made_in`: the fork generation in which it came.
  void enter();
  void note_end() noexcept { under_way_.fetch_sub(1, std::memory_order_relaxed); }
  void leave(std::uint32_t made_in) noexcept;
  // Waits until all have left. False: it took longer.
  bool wait_for_all(std::uint64_t timeout_ns);
  // Returns true while a thread is in wait_for_all().
  bool are_awaited() const { return awaited_.load(std::memory_order_relaxed) > 0; }

  // While it lives, this thread is in a callback of a request of this session.
  class InCallback {
   public:
    explicit InCallback(const SessionRequests& of) noexcept;
    ~InCallback();
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;

   private:
    friend class SessionRequests;
    const SessionRequests* const of_;
    const InCallback* const outer_;
  };
  bool in_callback() const noexcept;  // of this session
  static bool in_any_callback() noexcept;

 private:
  Queue& queue_of(std::int32_t priority) { return classes_[static_cast<std::size_t>(priority + kMostPriority)]; }
  RequestPtr take(Queue& queue, Queue::iterator at) {
    --waiting_;
    return std::move(queue.extract(at).value());
  }
  // The first request that is expected to meet its deadline; the first one if there is none.
  Queue::iterator first_feasible(const Queue& queue, std::uint64_t now_ns) const;

  // The class of the most urgent one; -1 where none waits.
  int top_class(std::uint64_t now_ns, std::int64_t* urgency) const;

  std::atomic<int> most_running_;
  std::atomic<int> depth_{0};
  // Least time (ns) that a run of each size class is expected to take; 0: none has ended.
  std::array<std::atomic<std::uint64_t>, kSizeClasses> run_times_ = {};
  int running_ = 0;
  std::atomic<std::size_t> waiting_{0};
  std::array<Queue, 2 * kMostPriority + 1> classes_;

  Mutex mutex_;  // guards what follows
  Condition changed_;
  std::uint64_t entered_ = 0;
  std::atomic<std::uint64_t> under_way_{0};
  std::atomic<std::uint32_t> used_in_{os::fork_generation()};
  std::atomic<int> awaited_{0};  // threads in wait_for_all
};

}  // namespace evn
