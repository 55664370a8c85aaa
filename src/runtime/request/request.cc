#include "runtime/request/request.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <new>

#include "base/guarded.h"
#include "base/lent_core.h"
#include "base/library_work.h"
#include "base/os/os.h"
#include "runtime/request/session_requests.h"
#include "runtime/run/stand_aside.h"

namespace evn {

Request::Request(std::shared_ptr<Session> session, std::vector<RunValue> inputs, std::vector<RunValue> outputs,
                 const RunRequest& run, std::shared_ptr<CancelToken> token)
    : session_(std::move(session)),
      owner_(session_->identity()->owner.lock()),
      runtime_(session_->runtime()),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      run_(run),
      token_(std::move(token)) {
  std::uint64_t bytes = 0;
  for (const RunValue& v : inputs_) bytes += v.tensor != nullptr ? v.tensor->size_bytes() : 0;
  size_class_ = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes)) / 2, SessionRequests::kSizeClasses - 1);
  given_.reserve(outputs_.size());
  for (std::size_t j = 0; j < outputs_.size(); ++j) given_.push_back(outputs_[j] || is_skipped(run_.skipped, j));
}

bool Request::execute(const RequestPtr& self) noexcept {
  const LibraryWork own(true);  // also in a task of the host's executor
  const LibraryFloatEnvironment floats;
  state_.store(State::kRunning, std::memory_order_relaxed);
  const std::uint64_t begin = os::now_ns();
  const std::optional<Error> e = any_error_of([&] {
    session_->run(inputs_, outputs_, run_);
    if (joinable_rows_ > 0) session_->identity()->statistics.note_rows(static_cast<std::size_t>(joinable_rows_));
  });
  session_->identity()->requests.add_run_time(size_class_, os::now_ns() - begin, !e);
  end(self, e ? &*e : nullptr).tell();
  return !e;
}

Request::Untold Request::stop(const RequestPtr& self) noexcept {
  try {
    Cancel{self->run_.stop, "the request's time is over"}.fail();
  } catch (const Error& e) {
    self->session_->identity()->statistics.note_end(self->run_.priority, outcome_of(e.status));
    return end(self, &e);
  }
}

void Request::end_joined(const RequestPtr& self, std::span<RunValue> made) noexcept {
  for (std::size_t j = 0; j < outputs_.size(); ++j) {
    if (!outputs_[j]) outputs_[j] = std::move(made[j]);
  }
  end(self, nullptr).tell();
}

Request::Untold Request::end(const RequestPtr& self, const Error* error) noexcept {
  Request& r = *self;
  r.inputs_.clear();  // others may have what the request kept before they learn of its end
  r.run_.state.reset();
  Untold ended{self, std::move(r.session_), std::move(r.owner_)};
  const LockIfAlive lock(r.mutex_);
  if (error != nullptr) {
    r.error_ = *error;
    r.failed_ = true;
    r.outputs_.clear();
  }
  ended.session->identity()->requests.note_end();
  r.state_.store(State::kEnded, std::memory_order_release);
  r.ended_.notify_all();
  return ended;
}

void Request::Untold::tell() const noexcept {
  SessionRequests& requests = session->identity()->requests;
  {
    const SessionRequests::InCallback inside(requests);
    std::optional<InHostCallback> aside;
    if (request->calls_host()) aside.emplace();
    const LibraryWork hosts(false);
    request->tell(request);
  }
  requests.leave(request->made_in_);
}

void Request::require_not_forked() const {
  if (made_in_ != os::fork_generation()) fail(EVN_ERROR_FORKED, "the request was under way when the process forked");
}

bool Request::wait(std::uint64_t timeout_ns) {
  if (has_ended()) return true;
  require_not_forked();
  if (timeout_ns == 0) return false;
  const LentCore lent;
  std::unique_lock<Mutex> lock(mutex_);
  const auto done = [this] { return has_ended(); };
  constexpr std::uint64_t kForever = std::uint64_t{1} << 62;
  if (timeout_ns < kForever) return ended_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), done);
  ended_.wait(lock, done);
  return true;
}

void Request::check_takeable() const {
  if (!has_ended()) require_not_forked();
  if (!has_ended()) fail(EVN_ERROR_BUSY, "the request has not ended");
  if (failed_) throw Error(error_);
  if (taken_) fail(EVN_ERROR_WRONG_STATE, "the request's outputs have been taken");
}

}  // namespace evn
