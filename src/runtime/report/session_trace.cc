// Tracing of a session.
#include "base/error.h"
#include "runtime/session/session.h"

namespace evn {

void Session::start_trace(std::uint32_t event_capacity, bool serial) {
  auto trace = std::make_shared<Trace>(compiled_, event_capacity, serial);
  trace->add_graph(owned_);  // runs of other graphs may outlive this session
  const std::lock_guard<Mutex> lock(tracing_->mutex);
  if (tracing_->is_on.load()) fail(EVN_ERROR_WRONG_STATE, "the session is being traced already");
  tracing_->latest.swap(trace);
  tracing_->is_on.store(true);
}

void Session::stop_trace() {
  const std::lock_guard<Mutex> lock(tracing_->mutex);
  if (!tracing_->is_on.exchange(false)) fail(EVN_ERROR_WRONG_STATE, "the session is not being traced");
}

std::shared_ptr<Trace> Session::trace_to_record() const {
  if (!tracing_->is_on.load(std::memory_order_relaxed)) return nullptr;
  std::shared_ptr<Trace> trace;
  {
    const std::lock_guard<Mutex> lock(tracing_->mutex);
    if (tracing_->is_on.load()) trace = tracing_->latest;
  }
  if (trace != nullptr) trace->add_graph(owned_);
  return trace;
}

std::shared_ptr<Trace> Session::latest_trace() const {
  const std::lock_guard<Mutex> lock(tracing_->mutex);
  if (tracing_->latest == nullptr) fail(EVN_ERROR_WRONG_STATE, "the session has never been traced");
  return tracing_->latest;
}

std::string Session::trace(evn_format format) const {
  const std::shared_ptr<Trace> trace = latest_trace();
  return format == EVN_FORMAT_JSON ? trace->to_json() : trace->to_text();
}

std::vector<std::uint64_t> Session::node_times() const {
  const std::shared_ptr<Trace> trace = latest_trace();
  std::vector<std::uint64_t> times(graph().nodes.size());
  for (const TraceEvent* e : trace->events()) {
    if (e->graph != &compiled_ || (e->kind != TraceKind::kKernel && e->kind != TraceKind::kHost)) continue;
    if (e->node >= 0) times[static_cast<std::size_t>(e->node)] += e->end_ns - e->start_ns;
  }
  return times;
}

}  // namespace evn
