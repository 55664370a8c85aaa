#include "runtime/dispatch/dispatcher.h"

#include "base/float_environment.h"
#include "runtime/batch/batcher.h"
#include "runtime/dispatch/dispatcher_state.h"
#include "runtime/run/stand_aside.h"

namespace evn {

[[gnu::tls_model("initial-exec")]] constinit thread_local RequestDispatcher::State::Thread* RequestDispatcher::State::t_thread =
    nullptr;
[[gnu::tls_model(
    "initial-exec")]] constinit thread_local RequestDispatcher::State::Execution* RequestDispatcher::State::t_execution = nullptr;

// Another thread in the place of each that has been in a callback for long. Whether there are such callbacks.
bool RequestDispatcher::State::replace_long_callbacks(std::uint64_t now) {
  bool some = false;
  for (const auto& t : threads) {
    if (t->callback_begin_ns == 0 || !t->executes) continue;
    some = true;
    if (now < t->callback_begin_ns + scheduling::kLongCallbackNs || waiting == 0) continue;
    t->executes = false;
    --executing[class_of(t->priority)];
    call_more_threads();
    return true;  // threads_ may have changed
  }
  return some;
}

// Ends requests that were stopped while they waited, or while a batch of theirs runs.
void RequestDispatcher::State::end_stopped(std::unique_lock<std::mutex>& lock) {
  std::vector<RequestPtr> found;
  std::vector<std::shared_ptr<BatchRun>> running = batches.all();
  try {
    for (const SessionRequests* s = first; s != nullptr; s = s->next) s->find_stopped(&found);
    std::size_t members = found.size();
    for (const auto& b : running) members += b->member_count();
    found.reserve(members);
  } catch (const std::bad_alloc&) {  // those that were found, then
    running.clear();
  }
  std::erase_if(found, [this](const RequestPtr& r) {
    SessionRequests& session = r->session().identity()->requests;
    if (!session.remove(r.get())) return true;
    note_gone(&session);
    return false;
  });
  if (found.empty() && running.empty()) return;
  lock.unlock();
  for (std::shared_ptr<BatchRun>& b : running) {
    b->take_stopped(&found);
    b.reset();
  }
  for (RequestPtr& r : found) {
    Request::Untold request = Request::stop(r);
    r.reset();
    if (is_forked()) return;  // by a host's function that has taken memory back
    lock.lock();
    try {
      untold.push_back(std::move(request));
      lock.unlock();
    } catch (const std::bad_alloc&) {
      lock.unlock();
      request.tell();
    }
  }
  if (is_forked()) return;
  lock.lock();
}

void RequestDispatcher::State::watch_loop() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopped) {
    const std::uint64_t begin = os::now_ns();
    has_unwatched = false;
    end_stopped(lock);
    if (is_forked() || stopped) return;
    if (!untold.empty()) call_more_threads();
    bool looks = replace_long_callbacks(begin) || !batches.is_empty() || !untold.empty();
    std::uint64_t deadline = UINT64_MAX;
    for (const SessionRequests* s = first; s != nullptr; s = s->next) s->look_at_stops(&deadline, &looks);
    const std::uint64_t now = os::now_ns();
    std::uint64_t sleep = looks ? std::max(scheduling::kWatchIntervalNs, scheduling::kWatchShare * (now - begin)) : UINT64_MAX;
    if (deadline != UINT64_MAX)
      sleep = std::min(sleep, std::max<std::uint64_t>(deadline > now ? deadline - now : 0, scheduling::kMinWatchNs));
    watch_sleeps = sleep == UINT64_MAX || deadline != UINT64_MAX;
    if (sleep == UINT64_MAX) {
      watch.wait(lock);
    } else {
      watch.wait_for(lock, std::chrono::nanoseconds(std::min<std::uint64_t>(sleep, 1'000'000'000)));
    }
    watch_sleeps = false;
  }
}

// The callback may wait for other requests of its session, so that its own request makes room for them. A callback may execute a
// task of another runtime's executor, whose requests have another state.
InHostCallback::InHostCallback() noexcept {
  if (RequestDispatcher::State::Thread* const thread = RequestDispatcher::State::t_thread;
      thread != nullptr && !thread->state->is_forked()) {
    RequestDispatcher::State& state = *thread->state;
    const std::lock_guard<std::mutex> lock(state.mutex);
    outer_begin_ns_ = std::exchange(thread->callback_begin_ns, os::now_ns());
    if (state.waiting > 0) state.call_the_watcher();
  }
  if (RequestDispatcher::State::Execution* const execution = RequestDispatcher::State::t_execution;
      execution != nullptr && !execution->state->is_forked()) {
    execution->state->make_room(execution);
  }
}

InHostCallback::~InHostCallback() {
  RequestDispatcher::State::Thread* const thread = RequestDispatcher::State::t_thread;
  if (thread == nullptr || thread->state->is_forked()) return;
  const std::lock_guard<std::mutex> lock(thread->state->mutex);
  thread->callback_begin_ns = outer_begin_ns_;
}

DeviceWait::DeviceWait() noexcept {
  RequestDispatcher::State::Thread* const thread = RequestDispatcher::State::t_thread;
  if (thread == nullptr || thread->state->is_forked()) return;
  RequestDispatcher::State& state = *thread->state;
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!thread->executes) return;
  stands_aside_ = true;
  thread->executes = false;
  --state.executing[class_of(thread->priority)];
  ++state.device_waits[class_of(thread->priority)];
  state.kept_threads = std::max(state.kept_threads, std::accumulate(state.device_waits.begin(), state.device_waits.end(), 0));
  if (state.waiting > 0) state.call_more_threads();
}

// More are executed for a moment than cores allow: runs wait for cores themselves.
DeviceWait::~DeviceWait() {
  RequestDispatcher::State::Thread* const thread = RequestDispatcher::State::t_thread;
  if (!stands_aside_ || thread->state->is_forked()) return;
  const std::lock_guard<std::mutex> lock(thread->state->mutex);
  thread->executes = true;
  ++thread->state->executing[class_of(thread->priority)];
  --thread->state->device_waits[class_of(thread->priority)];
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
  if (const Batcher* const batcher = request->session().batcher()) request->set_joinable_rows(batcher->rows_of(*request));
  SessionRequests& session = request->session().identity()->requests;
  const std::shared_ptr<Session> keep = request->shared_session();
  std::unique_lock<std::mutex> lock(s.mutex);
  while (s.waiting + s.untold.size() >= s.most_waiting) {
    if (fail_when_full || SessionRequests::in_any_callback()) {
      fail(EVN_ERROR_BUSY, "%llu requests are waiting", static_cast<unsigned long long>(s.waiting));
    }
    const Cancel cancel{stop, "the request's time is over"};
    if (cancel.stop()) cancel.fail();
    s.room.wait_for(lock, std::chrono::nanoseconds(scheduling::kWatchIntervalNs));
  }
  session.begin_in_child();
  s.push(request);
  session.enter();
  try {
    if (!s.on_host) {
      s.call_a_thread();
      if (stop.exists() || s.is_in_callback()) s.note_to_watch();
    } else {
      ++s.unposted;
      lock.unlock();
      const evn_status status = s.post_a_task();
      lock.lock();
      --s.unposted;
      if (status != EVN_OK) fail(status, "the host's executor has refused a request");
    }
  } catch (...) {
    if (!session.remove(request.get())) {  // somebody has come for it all the same, in the place of another one
      s.note_task_in_vain();
      return;
    }
    s.note_gone(&session);
    session.note_end();
    session.leave(os::fork_generation());
    throw;
  }
}

void RequestDispatcher::set_most_waiting(std::uint64_t most) noexcept {
  if (is_forked()) return;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->most_waiting = most;
  }
  state_->room.notify_all();
}

void RequestDispatcher::look_again() noexcept {
  if (!is_forked()) state_->look_again();
}

}  // namespace evn
