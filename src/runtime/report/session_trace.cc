// Tracing of a session.
#include "base/error.h"
#include "runtime/session.h"

namespace evn {

void Session::start_trace(std::uint32_t event_capacity, bool serial) {
  auto trace = std::make_shared<Trace>(compiled_, event_capacity, serial);
  const std::lock_guard<Mutex> lock(mutex_);
  if (tracing_.load()) fail(EVN_ERROR_WRONG_STATE, "the session is being traced already");
  trace_.swap(trace);
  tracing_.store(true);
}

void Session::stop_trace() {
  const std::lock_guard<Mutex> lock(mutex_);
  if (!tracing_.exchange(false)) fail(EVN_ERROR_WRONG_STATE, "the session is not being traced");
}

std::shared_ptr<Trace> Session::trace_to_record() const {
  if (!tracing_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard<Mutex> lock(mutex_);
  return tracing_.load() ? trace_ : nullptr;
}

std::shared_ptr<Trace> Session::latest_trace() const {
  const std::lock_guard<Mutex> lock(mutex_);
  if (trace_ == nullptr) fail(EVN_ERROR_WRONG_STATE, "the session has never been traced");
  return trace_;
}

std::string Session::trace(evn_format format) const {
  const std::shared_ptr<Trace> trace = latest_trace();
  return format == EVN_FORMAT_JSON ? trace->to_json() : trace->to_text();
}

std::vector<std::uint64_t> Session::node_times() const {
  const std::shared_ptr<Trace> trace = latest_trace();
  std::vector<std::uint64_t> times(graph().nodes.size());
  for (const TraceEvent* e : trace->events()) {
    if (e->kind != TraceKind::kKernel && e->kind != TraceKind::kHost) continue;
    if (e->node >= 0) times[static_cast<std::size_t>(e->node)] += e->end_ns - e->start_ns;
  }
  return times;
}

}  // namespace evn
