// Requests that are executed together: which request waits for which others, and their run.
#include "runtime/dispatch/dispatcher_state.h"

namespace evn {

// Executes a request that has been popped, with those that may be joined with it.
void RequestDispatcher::State::execute_with_others(Batcher& batcher, RequestPtr request, SessionRequests& requests,
                                                   const Thread* thread, std::unique_lock<std::mutex>& lock) {
  Gathering gathering(batcher);
  gather(gathering, request, requests, lock);
  if (thread != nullptr && waiting > 0) leave_the_others();
  const int beside = count_executing();
  lock.unlock();
  const std::uint64_t begin = os::thread_time_ns();
  bool completed = false;
  {
    const HeapScope counted(&request->runtime()->cpu().pool());  // in a task of the host
    if (gathering.members.size() > 1) {
      request.reset();
      completed = run_batch(gathering, lock);
    } else {
      gathering.members.clear();
      completed = request->execute(request);
      request.reset();
    }
    heap_meter().report();  // the thread may sleep for long now
  }
  if (is_forked()) return;  // by a callback: in the child, a thread of the parent's may have the mutex
  const std::uint64_t time = os::thread_time_ns() - begin;
  lock.lock();
  batcher.note_end(requests.in_flight());
  if (gathering.row_bytes == 0) return;
  // The thread's time, times its share of the cores: these, divided by the mean of how many requests executed at its begin and end.
  const auto executed = static_cast<std::uint64_t>(std::max(2, beside + count_executing()));
  const auto cores = on_host ? executed : std::max<std::uint64_t>(executed, 2 * static_cast<std::uint64_t>(most_executing));
  batcher.note_cost(gathering.row_bytes, gathering.rows, time * cores / executed, completed);
}

// Those that wait already; and those that come, as long as the first may wait for them, more are on their way, and no other request
// could have this thread.
void RequestDispatcher::State::gather(Gathering& gathering, const RequestPtr& leader, SessionRequests& requests,
                                      std::unique_lock<std::mutex>& lock) {
  try {
    if (!gathering.begin(leader)) return;
    requests.join(leader, leader->run().priority, &gathering.members, [&](const RequestPtr& r) { return gathering.wants(r); });
  } catch (const std::bad_alloc&) {  // with those that there are
    if (gathering.members.empty()) return;
  }
  const std::size_t taken = gathering.members.size() - 1;
  if (taken > 0) note_gone(&requests, taken);
  if (waiting > 0 && has_unwatched) call_the_watcher();
  while (!on_host && !stopped && requests.gathering == nullptr && !gathering.members.empty() && !gathering.is_full()) {
    const std::uint64_t now = os::now_ns();
    const bool expects = gathering.batcher.expects_more_than(requests.in_flight());
    if (now >= gathering.until_ns || requests.are_awaited() || !expects || (waiting > 0 && idle == 0) || gathering.has_stopped())
      return;
    std::uint64_t sleep = std::min(gathering.until_ns - now, scheduling::kGatherPollNs);
    if (gathering.has_tokens()) sleep = std::min(sleep, scheduling::kWatchIntervalNs);
    requests.gathering = &gathering;
    ++gatherings;
    joined.wait_for(lock, std::chrono::nanoseconds(sleep));
    --gatherings;
    requests.gathering = nullptr;
  }
}

// Without the lock. Returns true if all rows have been computed.
bool RequestDispatcher::State::run_batch(Gathering& gathering, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<BatchRun> batch = BatchRun::make(gathering.batcher, std::move(gathering.members));
  if (batch == nullptr) return false;
  const bool done = batch->prepare();
  if (done) gathering.rows = batch->rows();  // without members that were stopped
  if (is_forked()) return false;             // by the callback of a member that was stopped
  const bool watched = batch->has_stops() && !on_host;
  if (watched) {
    lock.lock();
    batches.add(*batch);
    call_the_watcher();
    lock.unlock();
  }
  batch->finish(done && batch->run());
  if (watched && !is_forked()) {
    lock.lock();
    batches.remove(*batch);
    lock.unlock();
  }
  return batch->has_computed_all();
}

}  // namespace evn
