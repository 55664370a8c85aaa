// Who executes requests: threads that start when they are first needed, or the host's executor. A forked child has neither threads
// nor requests of its parent's: its first submission begins anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "evener/evener.h"

namespace evn {

class Request;
using RequestPtr = std::shared_ptr<Request>;
struct StopCondition;

struct HostPost;

class RequestDispatcher {
 public:
  // `threads`: requests that are executed at a time. `on_host`: no thread is started; each request is a task for `post`, where that
  // is there. `most_waiting`: requests that may wait.
  RequestDispatcher(int threads, bool on_host, HostPost post, std::uint64_t most_waiting);
  // No request waits. On one of its own threads this does not wait for that one, which ends by itself.
  ~RequestDispatcher();
  RequestDispatcher(const RequestDispatcher&) = delete;
  RequestDispatcher& operator=(const RequestDispatcher&) = delete;

  // Takes a request. Where no more may wait: waits for room as long as `stop` allows, or throws EVN_ERROR_BUSY. Throws
  // EVN_ERROR_UNSUPPORTED, EVN_ERROR_NO_THREADS; the request is then as it was.
  void submit(const RequestPtr& request, bool fail_when_full, const StopCondition& stop);

  // Sets the number of requests that may wait, from now on.
  void set_most_waiting(std::uint64_t most) noexcept;
  // Has threads look for waiting requests, after the limit of a session was raised.
  void look_again() noexcept;

  struct State;

 private:
  bool is_forked() const { return made_in_.load(std::memory_order_acquire) != os::fork_generation(); }
  [[gnu::cold]] void begin_in_child();

  Mutex beginning_;
  std::atomic<std::uint32_t> made_in_{os::fork_generation()};  // that of the state
  std::shared_ptr<State> state_;
};

}  // namespace evn
