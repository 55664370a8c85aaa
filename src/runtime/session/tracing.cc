#include "runtime/session/tracing.h"

#include "base/error.h"

namespace evn {

void Tracing::start(const std::shared_ptr<const CompiledGraph>& graph, std::uint32_t event_capacity, bool serial) {
  auto trace = std::make_shared<Trace>(*graph, event_capacity, serial);
  trace->add_graph(graph);  // runs of other graphs may outlive its session
  const std::lock_guard<Mutex> lock(mutex_);
  if (is_on_.load()) fail(EVN_ERROR_WRONG_STATE, "the session is being traced already");
  latest_.swap(trace);
  is_on_.store(true);
}

void Tracing::start_like(const Tracing& other, const std::shared_ptr<const CompiledGraph>& graph) {
  if (!other.is_on_.load(std::memory_order_relaxed)) return;
  if (const std::shared_ptr<const Trace> traced = other.latest()) start(graph, traced->capacity(), traced->is_serial());
}

void Tracing::stop() {
  const std::lock_guard<Mutex> lock(mutex_);
  if (!is_on_.exchange(false)) fail(EVN_ERROR_WRONG_STATE, "the session is not being traced");
}

std::shared_ptr<Trace> Tracing::to_record(const std::shared_ptr<const CompiledGraph>& graph) const {
  if (!is_on_.load(std::memory_order_relaxed)) return nullptr;
  std::shared_ptr<Trace> trace;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (is_on_.load()) trace = latest_;
  }
  if (trace != nullptr) trace->add_graph(graph);
  return trace;
}

std::shared_ptr<const Trace> Tracing::latest() const {
  const std::lock_guard<Mutex> lock(mutex_);
  return latest_;
}

std::shared_ptr<const Trace> Tracing::recorded() const {
  std::shared_ptr<const Trace> trace = latest();
  if (trace == nullptr) fail(EVN_ERROR_WRONG_STATE, "the session has never been traced");
  return trace;
}

}  // namespace evn
