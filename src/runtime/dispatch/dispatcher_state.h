// What the threads of a dispatcher share: who executes, who is idle, which sessions have requests that wait. Only dispatcher.cc and
// dispatcher_batches.cc include it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/float_environment.h"
#include "base/os/background.h"
#include "base/os/os.h"
#include "base/scheduling_constants.h"
#include "runtime/batch/batch_run.h"
#include "runtime/batch/gathering.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/request/request.h"
#include "runtime/request/session_requests.h"

namespace evn {

inline std::size_t class_of(std::int32_t priority) { return static_cast<std::size_t>(priority + kMostPriority); }

// Kept by the dispatcher, by each of its threads, which may outlive it, and by each task of the host.
struct RequestDispatcher::State : std::enable_shared_from_this<State> {
  struct Thread {
    std::shared_ptr<State> state;
    std::unique_ptr<os::BackgroundThread> handle;
    std::uint64_t callback_begin_ns = 0;  // 0: it is in none
    std::int32_t priority = 0;            // of what it executes
    bool executes = false;                // and has not been replaced
  };
  // Request, or batch of requests, that a thread or a task of the host executes.
  struct Execution {
    State* state;
    SessionRequests* requests;
    bool has_run = false;  // it no longer counts against the concurrency of the session
  };

  const int most_executing;
  const bool on_host;
  const HostPost post;
  const std::uint32_t made_in = os::fork_generation();

  std::mutex mutex;  // guards what follows
  std::uint64_t most_waiting;
  Condition work, room, watch, joined;
  SessionRequests* first = nullptr;  // of the sessions in which requests wait
  std::uint64_t waiting = 0;
  std::uint64_t numbers = 0;
  int idle = 0;
  std::uint64_t tasks_in_vain = 0;     // of the host, which found nothing to execute: others do their work
  int unposted = 0;                    // requests for which the host's executor has yet to take a task
  int gatherings = 0;                  // threads that wait for requests to join
  BatchList batches;                   // under way, at which the watcher looks
  std::deque<Request::Untold> untold;  // requests that the watcher has ended; threads that have nothing to execute tell of them
  bool stopped = false;
  bool watch_sleeps = false;
  bool has_unwatched = false;  // requests to look after, of which the watcher was not told, as a thread was idle
  int kept_threads = 0;        // beside most_executing: as many as ever waited for devices at a time
  std::array<int, 2 * kMostPriority + 1> executing{};     // by priority
  std::array<int, 2 * kMostPriority + 1> device_waits{};  // by priority: threads that do not count there, as they wait for devices
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Thread>> ended;  // to be joined
  std::unique_ptr<Thread> watcher;             // looks after requests that are stopped while they wait, and after long callbacks

  [[gnu::tls_model("initial-exec")]] static constinit thread_local Thread* t_thread;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Execution* t_execution;

  State(int at_a_time, bool host, HostPost host_post, std::uint64_t most)
      : most_executing(at_a_time), on_host(host), post(host_post), most_waiting(most) {}

  // What is guarded is as other threads had it when the process forked, which this thread did in a callback.
  bool is_forked() const { return made_in != os::fork_generation(); }

  int count_executing() const { return std::accumulate(executing.begin(), executing.end(), 0); }

  // A request waits only for others that are as urgent: for a more urgent one a further thread is started, for which runs of the
  // others make way.
  // `depth`: as many of them as are to be under way at a time, those that wait for devices included.
  bool may_execute(std::int32_t priority, int depth) const {
    int as_urgent = 0, wait = 0;
    for (std::size_t c = class_of(priority); c < executing.size(); ++c) {
      as_urgent += executing[c];
      wait += device_waits[c];
    }
    return on_host || (as_urgent < most_executing && as_urgent + wait < std::max(most_executing, depth));
  }

  // Whether some thread is: it may be for long, and others then come in its place where the watcher sees that.
  bool is_in_callback() const {
    return std::any_of(threads.begin(), threads.end(), [](const auto& t) { return t->callback_begin_ns != 0; });
  }

  // The session whose turn it is; null: none.
  SessionRequests* next_session(std::uint64_t now) const {
    SessionRequests* best = nullptr;
    std::int64_t most = INT64_MIN;
    for (SessionRequests* s = first; s != nullptr; s = s->next) {
      const std::int64_t u = s->urgency(now);
      if (u <= most || !may_execute(s->top_priority(now), s->depth())) continue;
      most = u;
      best = s;
    }
    return best;
  }

  RequestPtr pop() {
    const std::uint64_t now = os::now_ns();
    SessionRequests* const session = next_session(now);
    if (session == nullptr) return nullptr;
    RequestPtr request = session->pop(now, watcher != nullptr);
    note_gone(session);
    return request;
  }

  void note_gone(SessionRequests* session, std::size_t count = 1) {
    waiting -= count;
    count == 1 ? room.notify_one() : room.notify_all();
    if (!session->is_empty() || !session->listed) return;
    SessionRequests** at = &first;
    while (*at != session) at = &(*at)->next;
    *at = session->next;
    session->listed = false;
  }

  void push(const RequestPtr& request) {
    SessionRequests& session = request->session().identity()->requests;
    request->note_submission(os::now_ns(), ++numbers);
    if (Batcher* const batcher = request->session().batcher()) batcher->note_arrival(session.in_flight() + 1);
    if (gatherings > 0) joined.notify_all();
    if (session.gathering != nullptr && session.gathering->offer(request)) return;
    session.push(request);
    ++waiting;
    if (session.listed) return;
    session.listed = true;
    session.next = first;
    first = &session;
  }

  // Has somebody come for what waits. Throws EVN_ERROR_NO_THREADS where there is no thread at all.
  void call_a_thread() {
    if (idle > 0) return work.notify_one();
    if (static_cast<int>(threads.size()) >= most_executing + scheduling::kMaxExtraThreads) return;
    if (untold.empty() && next_session(os::now_ns()) == nullptr) return;
    ended.clear();
    try {
      threads.reserve(threads.size() + 1);
      ended.reserve(threads.size() + 1);
      threads.push_back(start(&work_main));
    } catch (const Error&) {
      if (threads.empty()) throw;
    } catch (const std::bad_alloc&) {
      if (threads.empty()) throw;
    }
  }

  std::unique_ptr<Thread> start(void (*body)(void*)) {
    auto thread = std::make_unique<Thread>();
    thread->state = shared_from_this();
    thread->handle = std::make_unique<os::BackgroundThread>(body, thread.get());
    return thread;
  }

  // Has the watcher look after a submitted request: at once if no idle thread may execute it, else when a thread takes another
  // one.
  void note_to_watch() {
    if (idle == 0 || next_session(os::now_ns()) == nullptr) call_the_watcher();
    else has_unwatched = true;
  }

  // Has other threads, and the watcher, look after the requests that wait while this thread executes one.
  void leave_the_others() {
    call_more_threads();
    if (has_unwatched) call_the_watcher();
  }

  // Ends the counting of an execution against the concurrency of its session. Called without the lock.
  void make_room(Execution* execution) noexcept {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (std::exchange(execution->has_run, true)) return;
      execution->requests->done();
      if (!execution->requests->is_bounded() || execution->requests->is_empty()) return;
    }
    look_again();
  }

  // Has a thread or a task look for waiting requests. Called without the lock.
  void look_again() noexcept {
    std::unique_lock<std::mutex> lock(mutex);
    if (waiting == 0) return;
    if (!on_host) return call_more_threads();
    if (tasks_in_vain == 0 || next_session(os::now_ns()) == nullptr) return;
    --tasks_in_vain;
    lock.unlock();
    if (post_a_task() == EVN_OK) return;
    lock.lock();
    note_task_in_vain();  // the next task that ends looks
  }

  // Where the system refuses the thread, those who are stopped end when their turn comes.
  void call_the_watcher() {
    if (watcher != nullptr) {
      if (watch_sleeps) watch.notify_one();
      return;
    }
    try {
      watcher = start(&watch_main);
    } catch (const Error&) {
    } catch (const std::bad_alloc&) {}
  }

  // Executes a request that has been popped; `thread` is null in a task of the host. The lock is held again in the end. False, and
  // it is not, in a child that a callback has forked.
  bool execute(RequestPtr request, Thread* thread, std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<Session> session = request->shared_session();
    const std::int32_t priority = request->run().priority;
    ++executing[class_of(priority)];
    if (thread != nullptr) {
      thread->priority = priority;
      thread->executes = true;
    }
    Execution execution{this, &session->identity()->requests};
    Execution* const outer = std::exchange(t_execution, &execution);  // a callback may execute tasks of the host
    Batcher* const batcher = session->batcher();
    if (batcher == nullptr) {
      if (thread != nullptr && waiting > 0) leave_the_others();
      lock.unlock();
      {
        const HeapScope counted(&session->runtime()->cpu().pool());  // in a task of the host
        request->execute(request);
        request.reset();
        heap_meter().report();  // the thread may sleep for long now
      }
      t_execution = outer;
      if (is_forked()) return false;
      lock.lock();
    } else {
      execute_with_others(*batcher, std::move(request), session->identity()->requests, thread, lock);
      t_execution = outer;
      if (is_forked()) return false;
    }
    if (thread == nullptr || thread->executes) --executing[class_of(priority)];
    if (thread != nullptr) thread->executes = false;
    if (!execution.has_run) session->identity()->requests.done();
    lock.unlock();
    session.reset();  // with it the runtime may end, here
    if (is_forked()) return false;
    lock.lock();
    return true;
  }

  // Tells of a request that the watcher has ended: the callback may block, which the watcher must not. Returns as execute does.
  bool tell_of_one(std::unique_lock<std::mutex>& lock) {
    Request::Untold request = std::move(untold.front());
    untold.pop_front();
    room.notify_one();
    lock.unlock();
    request.tell();
    request = {};
    heap_meter().report();  // the thread may sleep for long now
    if (is_forked()) return false;
    lock.lock();
    return true;
  }

  void execute_with_others(Batcher& batcher, RequestPtr request, SessionRequests& requests, const Thread* thread,
                           std::unique_lock<std::mutex>& lock);
  void gather(Gathering& gathering, const RequestPtr& leader, SessionRequests& requests, std::unique_lock<std::mutex>& lock);
  bool run_batch(Gathering& gathering, std::unique_lock<std::mutex>& lock);

  static void work_main(void* argument) {
    auto* const thread = static_cast<Thread*>(argument);
    const std::shared_ptr<State> state = thread->state;
    t_thread = thread;
    state->work_loop(thread);
  }

  void work_loop(Thread* thread) {
    std::unique_lock<std::mutex> lock(mutex);
    while (!stopped) {
      if (RequestPtr request = pop()) {
        if (!execute(std::move(request), thread, lock)) return;
        continue;
      }
      if (!untold.empty()) {
        if (!tell_of_one(lock)) return;
        continue;
      }
      if (static_cast<int>(threads.size()) > most_executing + kept_threads) return end_thread(thread);
      ++idle;
      work.wait(lock);
      --idle;
    }
  }

  // What was submitted while this thread slept may be for several.
  void call_more_threads() {
    try {
      call_a_thread();
    } catch (const Error&) {  // this one is there
    } catch (const std::bad_alloc&) {}
  }

  // A thread that was there for others' long callbacks.
  void end_thread(Thread* thread) {
    for (std::unique_ptr<Thread>& t : threads) {
      if (t.get() != thread) continue;
      std::swap(t, threads.back());
      ended.push_back(std::move(threads.back()));  // for which there is room
      threads.pop_back();
      return;
    }
  }

  static void watch_main(void* argument) {
    const std::shared_ptr<State> state = static_cast<Thread*>(argument)->state;
    state->watch_loop();
  }

  void watch_loop();
  bool replace_long_callbacks(std::uint64_t now);
  void end_stopped(std::unique_lock<std::mutex>& lock);

  // Counts a task that found no request to execute, up to the number of requests that wait.
  void note_task_in_vain() { tasks_in_vain = std::min(tasks_in_vain + 1, waiting); }

  // Gives the host's executor a task that looks for a request. Called without the lock.
  evn_status post_a_task() noexcept {
    try {
      auto context = std::make_unique<std::shared_ptr<State>>(shared_from_this());
      const HostFloatEnvironment hosts;
      const evn_status status = post.post(post.user, &run_task, context.get());
      if (status == EVN_OK) (void)context.release();
      return status;
    } catch (const std::bad_alloc&) {
      return EVN_ERROR_OUT_OF_MEMORY;
    } catch (...) {
      return EVN_ERROR_INTERNAL;
    }
  }

  static void run_task(void* context, std::uint32_t) {
    const LibraryFloatEnvironment floats;
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(context));
    (*state)->work_on_host();
  }

  // Executes one request, which may be another one than the task was posted for. Executes more while a request may have no task.
  void work_on_host() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      RequestPtr request = pop();
      if (request == nullptr) {
        note_task_in_vain();
        return;
      }
      if (!execute(std::move(request), nullptr, lock)) return;
      if (tasks_in_vain > 0) --tasks_in_vain;
      else if (unposted == 0) return;
    }
  }
};

}  // namespace evn
