#include "runtime/request/dispatcher.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/os/background.h"
#include "base/os/os.h"
#include "runtime/batch/batch_run.h"
#include "runtime/batch/gathering.h"
#include "runtime/request/request.h"
#include "runtime/request/session_requests.h"

namespace evn {
namespace {

constexpr int kMostFurtherThreads = 64;       // beside those that execute: for more urgent requests, and for those in callbacks
constexpr std::uint64_t kLookNs = 2'000'000;  // how often tokens, and threads in callbacks, are looked at
constexpr std::uint64_t kShareOfLooks = 20;   // looks take no more than this part of a core
constexpr std::uint64_t kLongCallbackNs = 4'000'000;

std::size_t class_of(std::int32_t priority) { return static_cast<std::size_t>(priority + kMostPriority); }

}  // namespace

// Kept by the dispatcher, by each of its threads, which may outlive it, and by each task of the host.
struct RequestDispatcher::State : std::enable_shared_from_this<State> {
  struct Thread {
    std::shared_ptr<State> state;
    std::unique_ptr<os::BackgroundThread> handle;
    std::uint64_t callback_begin_ns = 0;  // 0: it is in none
    std::int32_t priority = 0;            // of what it executes
    bool executes = false;                // and has not been replaced
  };

  const int most_executing;
  const bool on_host;
  const HostPost post;
  const std::uint64_t most_waiting;
  const std::uint32_t made_in = os::fork_generation();

  std::mutex mutex;  // guards what follows
  Condition work, room, watch, joined;
  SessionRequests* first = nullptr;  // of the sessions in which requests wait
  std::uint64_t waiting = 0;
  std::uint64_t numbers = 0;
  int idle = 0;
  int tasks_in_vain = 0;           // of the host, which found nothing that might be executed then
  std::size_t tasks_to_spare = 0;  // of requests that were joined with others
  int gatherings = 0;              // threads that wait for requests to join
  BatchList batches;               // under way, at which the watcher looks
  bool stopped = false;
  bool watch_sleeps = false;
  std::array<int, 2 * kMostPriority + 1> executing{};  // by priority
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Thread>> ended;  // to be joined
  std::unique_ptr<Thread> watcher;             // looks after requests that are stopped while they wait, and after long callbacks

  [[gnu::tls_model("initial-exec")]] static constinit thread_local Thread* t_thread;

  State(int at_a_time, bool host, HostPost host_post, std::uint64_t most)
      : most_executing(at_a_time), on_host(host), post(host_post), most_waiting(most) {}

  // What is guarded is as other threads had it when the process forked, which this thread did in a callback.
  bool is_forked() const { return made_in != os::fork_generation(); }

  // A request waits only for others that are as urgent: for a more urgent one a further thread is started, for which runs of the
  // others make way.
  bool may_execute(std::int32_t priority) const {
    int as_urgent = 0;
    for (std::size_t c = class_of(priority); c < executing.size(); ++c) as_urgent += executing[c];
    return on_host || as_urgent < most_executing;
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
      if (u <= most || !may_execute(s->top_priority(now))) continue;
      most = u;
      best = s;
    }
    return best;
  }

  RequestPtr pop() {
    const std::uint64_t now = os::now_ns();
    SessionRequests* const session = next_session(now);
    if (session == nullptr) return nullptr;
    RequestPtr request = session->pop(now);
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
    SessionRequests& session = request->session().requests();
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
    if (static_cast<int>(threads.size()) >= most_executing + kMostFurtherThreads || next_session(os::now_ns()) == nullptr) return;
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
    Batcher* const batcher = session->batcher();
    if (batcher == nullptr) {
      if (thread != nullptr && waiting > 0) call_more_threads();
      lock.unlock();
      request->execute(request);
      request.reset();
      if (is_forked()) return false;
      lock.lock();
    } else {
      execute_with_others(*batcher, std::move(request), *session, thread, lock);
      if (is_forked()) return false;
    }
    if (thread == nullptr || thread->executes) --executing[class_of(priority)];
    if (thread != nullptr) thread->executes = false;
    session->requests().done();
    lock.unlock();
    session.reset();  // with it the runtime may end, here
    if (is_forked()) return false;
    lock.lock();
    return true;
  }

  void execute_with_others(Batcher& batcher, RequestPtr request, Session& session, const Thread* thread,
                           std::unique_lock<std::mutex>& lock);
  void gather(Gathering& gathering, const RequestPtr& leader, SessionRequests& requests, std::unique_lock<std::mutex>& lock);
  void run_batch(Batcher& batcher, std::vector<RequestPtr> members, std::unique_lock<std::mutex>& lock);

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
      if (static_cast<int>(threads.size()) > most_executing) return end_thread(thread);
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
  void look_at_batches(std::unique_lock<std::mutex>& lock);

  static void run_task(void* context, std::uint32_t) {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(context));
    (*state)->work_on_host();
  }

  void work_on_host() {
    std::unique_lock<std::mutex> lock(mutex);
    do {
      RequestPtr request = pop();
      if (request == nullptr) {
        if (tasks_to_spare > 0) --tasks_to_spare;
        else ++tasks_in_vain;
        return;
      }
      if (!execute(std::move(request), nullptr, lock)) return;
    } while (tasks_in_vain > 0 && tasks_in_vain-- > 0);
  }
};

[[gnu::tls_model("initial-exec")]] constinit thread_local RequestDispatcher::State::Thread* RequestDispatcher::State::t_thread =
    nullptr;

// Executes a request that has been popped, with those that may be joined with it. Of each that is executed alone the batcher is
// told too.
void RequestDispatcher::State::execute_with_others(Batcher& batcher, RequestPtr request, Session& session, const Thread* thread,
                                                   std::unique_lock<std::mutex>& lock) {
  SessionRequests& requests = session.requests();
  Gathering gathering(batcher);
  gather(gathering, request, requests, lock);
  if (thread != nullptr && waiting > 0) call_more_threads();
  lock.unlock();
  if (gathering.members.size() > 1) {
    request.reset();
    run_batch(batcher, std::move(gathering.members), lock);
  } else {
    gathering.members.clear();
    batcher.count_run(batcher.rows_of(*request));
    const std::uint64_t begin = os::now_ns();
    request->execute(request);
    request.reset();
    batcher.note_duration(os::now_ns() - begin);
  }
  lock.lock();
  batcher.note_end(requests.in_flight());
}

// Those that wait already; and those that come, as long as the first may wait for them, more are on their way, and no other request
// could have this thread.
void RequestDispatcher::State::gather(Gathering& gathering, const RequestPtr& leader, SessionRequests& requests,
                                      std::unique_lock<std::mutex>& lock) {
  try {
    if (!gathering.begin(leader)) return;
    requests.join(leader->run().priority, &gathering.members, [&](const RequestPtr& r) { return gathering.wants(r); });
  } catch (const std::bad_alloc&) {  // with those that there are
    if (gathering.members.empty()) return;
  }
  const std::size_t taken = gathering.members.size() - 1;
  if (taken > 0) note_gone(&requests, taken);
  if (on_host) tasks_to_spare += taken;
  while (!on_host && !stopped && requests.gathering == nullptr && !gathering.members.empty() && !gathering.is_full()) {
    const std::uint64_t now = os::now_ns();
    const bool expects = gathering.batcher.expects_more_than(requests.in_flight());
    if (now >= gathering.until_ns || requests.are_awaited() || !expects || (waiting > 0 && idle == 0) || gathering.has_stopped())
      return;
    std::uint64_t sleep = std::min(gathering.until_ns - now, 10 * kLookNs);
    if (gathering.has_tokens()) sleep = std::min(sleep, kLookNs);
    requests.gathering = &gathering;
    ++gatherings;
    joined.wait_for(lock, std::chrono::nanoseconds(sleep));
    --gatherings;
    requests.gathering = nullptr;
  }
}

// Without the lock.
void RequestDispatcher::State::run_batch(Batcher& batcher, std::vector<RequestPtr> members, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<BatchRun> batch = BatchRun::make(batcher, std::move(members));
  if (batch == nullptr) return;
  bool done = batch->prepare();
  const bool watched = done && batch->has_stops() && !on_host;
  if (watched) {
    lock.lock();
    batches.add(*batch);
    call_the_watcher();
    lock.unlock();
  }
  if (done) done = batch->run();
  if (watched) {
    lock.lock();
    batches.remove(*batch);
    lock.unlock();
  }
  batch->finish(done);
}

void RequestDispatcher::State::look_at_batches(std::unique_lock<std::mutex>& lock) {
  if (batches.is_empty()) return;
  std::vector<std::shared_ptr<BatchRun>> found = batches.all();
  lock.unlock();
  for (std::shared_ptr<BatchRun>& b : found) {
    b->look();
    b.reset();
  }
  lock.lock();
}

// Another thread in the place of each that has been in a callback for long. Whether there are such callbacks.
bool RequestDispatcher::State::replace_long_callbacks(std::uint64_t now) {
  bool some = false;
  for (const auto& t : threads) {
    if (t->callback_begin_ns == 0 || !t->executes) continue;
    some = true;
    if (now - t->callback_begin_ns < kLongCallbackNs || waiting == 0) continue;
    t->executes = false;
    --executing[class_of(t->priority)];
    call_more_threads();
    return true;  // threads_ may have changed
  }
  return some;
}

void RequestDispatcher::State::end_stopped(std::unique_lock<std::mutex>& lock) {
  std::vector<RequestPtr> found;
  try {
    for (const SessionRequests* s = first; s != nullptr; s = s->next) s->find_stopped(&found);
  } catch (const std::bad_alloc&) {  // those that were found, then
  }
  for (RequestPtr& r : found) {
    SessionRequests& session = r->session().requests();
    if (!session.remove(r.get())) {
      r.reset();
      continue;
    }
    note_gone(&session);
  }
  lock.unlock();
  for (RequestPtr& r : found) {
    if (r != nullptr) r->end_stopped(r);
    r.reset();
  }
  if (is_forked()) return;
  lock.lock();
}

void RequestDispatcher::State::watch_loop() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopped) {
    const std::uint64_t begin = os::now_ns();
    bool looks = replace_long_callbacks(begin);
    end_stopped(lock);
    if (is_forked()) return;
    look_at_batches(lock);
    if (stopped || is_forked()) return;
    looks = looks || !batches.is_empty();
    std::uint64_t deadline = UINT64_MAX;
    for (const SessionRequests* s = first; s != nullptr; s = s->next) s->look_at_stops(&deadline, &looks);
    const std::uint64_t now = os::now_ns();
    std::uint64_t sleep = looks ? std::max(kLookNs, kShareOfLooks * (now - begin)) : UINT64_MAX;
    if (deadline != UINT64_MAX) sleep = std::min(sleep, std::max<std::uint64_t>(deadline > now ? deadline - now : 0, 100'000));
    watch_sleeps = sleep == UINT64_MAX || deadline != UINT64_MAX;
    if (sleep == UINT64_MAX) {
      watch.wait(lock);
    } else {
      watch.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(sleep, 1'000'000'000)));
    }
    watch_sleeps = false;
  }
}

RequestDispatcher::Aside::Aside() noexcept {
  State::Thread* const thread = State::t_thread;
  if (thread == nullptr) return;
  State& state = *thread->state;
  if (state.is_forked()) return;
  const std::lock_guard<std::mutex> lock(state.mutex);
  thread->callback_begin_ns = os::now_ns();
  if (state.waiting > 0) state.call_the_watcher();
}

RequestDispatcher::Aside::~Aside() {
  State::Thread* const thread = State::t_thread;
  if (thread == nullptr || thread->state->is_forked()) return;
  const std::lock_guard<std::mutex> lock(thread->state->mutex);
  thread->callback_begin_ns = 0;
}

RequestDispatcher::RequestDispatcher(int threads, bool on_host, HostPost post, std::uint64_t most_waiting)
    : state_(std::make_shared<State>(threads, on_host, post, most_waiting)) {}

RequestDispatcher::~RequestDispatcher() {
  if (is_forked()) return;  // the parent's state stays: its threads kept it
  std::vector<std::unique_ptr<State::Thread>> threads, ended;
  std::unique_ptr<State::Thread> watcher;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopped = true;
    threads.swap(state_->threads);
    ended.swap(state_->ended);
    watcher.swap(state_->watcher);
    state_->work.notify_all();
    state_->watch.notify_all();
  }
}

void RequestDispatcher::begin_in_child() {
  const std::lock_guard<Mutex> lock(beginning_);
  if (!is_forked()) return;
  const State& old = *state_;
  state_ = std::make_shared<State>(old.most_executing, old.on_host, old.post, old.most_waiting);
  made_in_.store(os::fork_generation(), std::memory_order_release);
}

void RequestDispatcher::submit(const RequestPtr& request, bool fail_when_full, const StopCondition& stop) {
  if (is_forked()) begin_in_child();
  State& s = *state_;
  if (s.on_host && s.post.post == nullptr) {
    fail(EVN_ERROR_UNSUPPORTED, "the runtime has an executor of the host's, and asynchronous runs need its `post` too");
  }
  std::unique_ptr<std::shared_ptr<State>> context;
  if (s.on_host) context = std::make_unique<std::shared_ptr<State>>(state_);
  SessionRequests& session = request->session().requests();
  const std::shared_ptr<Session> keep = request->shared_session();
  std::unique_lock<std::mutex> lock(s.mutex);
  while (s.waiting >= s.most_waiting) {
    if (fail_when_full || SessionRequests::in_any_callback()) {
      fail(EVN_ERROR_BUSY, "%llu requests are waiting", static_cast<unsigned long long>(s.waiting));
    }
    const Cancel cancel{stop, "the request's time is over"};
    if (cancel.stop()) cancel.fail();
    s.room.wait_for(lock, std::chrono::nanoseconds(kLookNs));
  }
  session.begin_in_child();
  s.push(request);
  session.enter();
  try {
    if (!s.on_host) {
      s.call_a_thread();
      if (s.idle == 0 && (stop.exists() || s.is_in_callback())) s.call_the_watcher();
    } else {
      lock.unlock();
      const evn_status status = s.post.post(s.post.user, &State::run_task, context.get());
      if (status != EVN_OK) fail(status, "the host's executor has refused a request");
      (void)context.release();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (!session.remove(request.get())) return;  // somebody has come for it all the same
    s.note_gone(&session);
    session.note_end();
    session.leave(os::fork_generation());
    throw;
  }
}

}  // namespace evn
