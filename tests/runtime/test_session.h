// A session as a value, with what tests ask of it.
#pragma once

#include "runtime/report/explain.h"
#include "runtime/report/session_trace.h"
#include "runtime/request/session_identity.h"
#include "runtime/stages/make_session.h"

namespace evn::test {

class TestSession {
 public:
  TestSession(const ModelPtr& model, SessionRequest request, const CacheConfig& cache = {})
      : session_(make_session(model, std::move(request), cache)) {}

  operator Session&() const { return *session_; }  // NOLINT: it is one
  const std::shared_ptr<Session>& shared() const { return session_; }

  const CompiledGraph& compiled() const { return session_->compiled(); }
  const Graph& graph() const { return session_->graph(); }
  const std::shared_ptr<Runtime>& runtime() const { return session_->runtime(); }
  void run(std::span<const RunValue> inputs, std::span<RunValue> outputs, const RunRequest& request) {
    session_->run(inputs, outputs, request);
  }
  SessionMemoryStats memory_stats() const { return session_->memory_stats(); }
  RunStatistics& statistics() const { return session_->identity()->statistics; }
  std::vector<std::shared_ptr<const Plan>> latest_plans() const { return session_->plans().latest(); }
  std::string explain(evn_format format) const { return evn::explain(*session_, format); }
  void start_trace(std::uint32_t events) { session_->tracing().start(session_->shared_graph(), events); }
  void stop_trace() { session_->tracing().stop(); }
  std::string trace(evn_format format) const { return render_trace(*session_, format); }

 private:
  std::shared_ptr<Session> session_;
};

}  // namespace evn::test
