// One asynchronous run of a session: what it was given, and what came of it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "base/user_data.h"
#include "runtime/request/session_identity.h"
#include "runtime/session/session.h"

namespace evn {

class CompletionQueue;
class Request;
using RequestPtr = std::shared_ptr<Request>;

class Request {
 public:
  // `run.stop` has what `token` keeps. Tensors of `outputs` are written in place.
  Request(std::shared_ptr<Session> session, std::vector<RunValue> inputs, std::vector<RunValue> outputs, const RunRequest& run,
          std::shared_ptr<CancelToken> token);
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Until it has ended.
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  const std::shared_ptr<Runtime>& runtime() const { return runtime_; }
  const RunRequest& run() const { return run_; }
  std::size_t output_count() const { return outputs_.size(); }
  std::span<const RunValue> outputs() const { return outputs_; }
  std::uint64_t submitted_ns() const { return submitted_ns_; }
  // Rows of a request that may be joined with others (Batcher::rows_of); 0: it runs alone.
  std::int64_t joinable_rows() const { return joinable_rows_; }
  void set_joinable_rows(std::int64_t rows) { joinable_rows_ = rows; }
  // Half the bit width of the number of its inputs' bytes, below SessionRequests::kSizeClasses: requests of one class take about as
  // long.
  std::size_t size_class() const { return size_class_; }
  // Until it has ended: what it was given, and the tensor that was given for an output, or null.
  std::span<const RunValue> inputs() const { return inputs_; }
  const TensorPtr& given_output(std::size_t output) const { return outputs_[output].tensor; }

  // Runs the model. Returns true if that has succeeded. Called once, without locks.
  bool execute(const RequestPtr& self) noexcept;
  // A request that has ended, of which the host has not been told. With it the session and the runtime may end.
  struct Untold {
    RequestPtr request;
    std::shared_ptr<Session> session;
    std::shared_ptr<PlacementOwner> owner;

    void tell() const noexcept;
  };
  // Ends a request that nobody executes, and that its token or deadline has stopped: threads that wait for it go on.
  static Untold stop(const RequestPtr& self) noexcept;
  static void end_stopped(const RequestPtr& self) noexcept { stop(self).tell(); }
  // Ends a request that a run of several has computed. `made`: the outputs for which no tensor was given.
  void end_joined(const RequestPtr& self, std::span<RunValue> made) noexcept;
  // Of the dispatcher, before anybody else knows the request.
  void note_submission(std::uint64_t now_ns, std::uint64_t number) {
    submitted_ns_ = now_ns;
    run_.submitted_ns = now_ns;
    number_ = number;
  }

  // Whether it has ended; waits so long for it (UINT64_MAX: as long as it takes). Throws EVN_ERROR_FORKED where it never will, in a
  // child of the process that submitted it.
  bool wait(std::uint64_t timeout_ns);
  bool has_ended() const { return state_.load(std::memory_order_acquire) == State::kEnded; }

  // Hands the outputs to `give`, which throws where it cannot take them: they are kept then. Throws the run's Error,
  // EVN_ERROR_BUSY, EVN_ERROR_WRONG_STATE.
  template <typename F>
  void take(F&& give) {
    const std::lock_guard<Mutex> lock(mutex_);
    check_takeable();
    give(std::span<const RunValue>(outputs_));
    taken_ = true;
    outputs_.clear();
  }
  // Whether the caller gave this output a place, which is where it is, or has no use for it.
  bool was_given(std::size_t output) const { return given_[output]; }

 protected:
  // Tells of the end, on the thread that executed the request. `self` keeps it.
  virtual void tell(const RequestPtr& self) noexcept = 0;
  // Returns true if tell() calls a function of the host, which may block.
  virtual bool calls_host() const noexcept = 0;

 private:
  friend class SessionRequests;
  enum class State : std::uint8_t { kQueued, kRunning, kEnded };

  void require_not_forked() const;
  void check_takeable() const;
  static Untold end(const RequestPtr& self, const Error* error) noexcept;

  std::shared_ptr<Session> session_;       // until the end
  std::shared_ptr<PlacementOwner> owner_;  // until the end; nullable. Where a device is lost, it says what the request goes on with
  const std::shared_ptr<Runtime> runtime_;
  std::vector<RunValue> inputs_, outputs_;
  std::vector<bool> given_;
  RunRequest run_;
  const std::shared_ptr<CancelToken> token_;
  std::int64_t joinable_rows_ = 0;
  std::size_t size_class_ = 0;
  const std::uint32_t made_in_ = os::fork_generation();
  std::atomic<State> state_{State::kQueued};
  bool taken_ = false;
  bool failed_ = false;
  Mutex mutex_;
  Condition ended_;
  Error error_;
  std::uint64_t submitted_ns_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace evn
