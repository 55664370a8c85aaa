// Memory that a session holds, and what the log says of its plans.
#include "base/error.h"
#include "kept_features.h"
#include "runtime/session/session_call.h"
#include "runtime/split/row_split.h"

namespace evn {

SessionMemoryStats Session::memory_stats() const {
  SessionMemoryStats stats;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    add_plans(plans_, &stats);
  }
  for (const std::unique_ptr<Session>& body : bodies_) {
    if (body == nullptr) continue;
    const SessionMemoryStats inner = body->memory_stats();
    stats.plan_count += inner.plan_count;
    stats.plan_bytes += inner.plan_bytes;
  }
  if (kHas_devices && split_ != nullptr) {
    for (const RowSplit::Share& part : split_->shares()) {
      const SessionMemoryStats inner = part.session->memory_stats();
      stats.plan_count += inner.plan_count;
      stats.plan_bytes += inner.plan_bytes;
    }
  }
  for (const std::shared_ptr<Session>& open : opened()) {
    const SessionMemoryStats inner = open->memory_stats();
    stats.plan_count += inner.plan_count;
    stats.plan_bytes += inner.plan_bytes;
  }
  stats.arenas = arenas_->stats();
  stats.state_bytes = state_bytes_.load(std::memory_order_relaxed);
  return stats;
}

void Session::log_plan(const Plan& plan, std::uint64_t duration_ns, bool made_over) const {
  const LogSink& log = runtime()->log();
  if (!log.wants(EVN_LOG_DEBUG)) return;
  std::string shapes;
  for (const TensorDesc& desc : plan.signature->inputs) {
    if (shapes.size() < 256) shapes += (shapes.empty() ? "" : " ") + desc.shape.to_string();
  }
  std::uint64_t arena_bytes = 0;
  for (const std::size_t bytes : plan.arena_bytes) arena_bytes += bytes;
  const char* const name = compiled_.model->file_name.empty() ? "(from a buffer)" : compiled_.model->file_name.c_str();
  LogEvent(log, EVN_LOG_DEBUG, "plan.created")
      .field("file", compiled_.model->file_name.c_str())
      .field("shapes", shapes.c_str())
      .field("part", plan.subplan)
      .field("steps", plan.steps.size())
      .field("arena_bytes", arena_bytes)
      .field("made_over", made_over ? 1 : 0)
      .field("duration_ns", duration_ns)
      .write("planned %s for %s: %zu steps, %llu bytes of arenas, %llu us", name, shapes.c_str(), plan.steps.size(),
             static_cast<unsigned long long>(arena_bytes), static_cast<unsigned long long>(duration_ns / 1000));
}

}  // namespace evn
