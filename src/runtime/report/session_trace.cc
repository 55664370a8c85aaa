#include "runtime/report/session_trace.h"

namespace evn {

std::string render_trace(const Session& session, evn_format format) {
  const std::shared_ptr<const Trace> trace = session.tracing().recorded();
  return format == EVN_FORMAT_JSON ? trace->to_json() : trace->to_text();
}

std::vector<std::uint64_t> node_times(const Session& session) {
  const std::shared_ptr<const Trace> trace = session.tracing().recorded();
  std::vector<std::uint64_t> times(session.graph().nodes.size());
  for (const TraceEvent* e : trace->events()) {
    if (e->graph != &session.compiled() || (e->kind != TraceKind::kKernel && e->kind != TraceKind::kHost)) continue;
    if (e->node >= 0) times[static_cast<std::size_t>(e->node)] += e->end_ns - e->start_ns;
  }
  return times;
}

}  // namespace evn
