// Recording of a session's runs, shared by the sessions of one identity in which other inputs are open.
#pragma once

#include <atomic>
#include <memory>

#include "base/mutex.h"
#include "runtime/run/trace.h"

namespace evn {

class Tracing {
 public:
  // Begins to record runs of the graph. Throws EVN_ERROR_WRONG_STATE, EVN_ERROR_OUT_OF_MEMORY. What was recorded stays until the
  // next start. `serial`: runs wait for each step before they begin the next.
  void start(const std::shared_ptr<const CompiledGraph>& graph, std::uint32_t event_capacity, bool serial = false);
  // Begins as `other` does, where that one records.
  void start_like(const Tracing& other, const std::shared_ptr<const CompiledGraph>& graph);
  // Throws EVN_ERROR_WRONG_STATE.
  void stop();
  // The trace into which a run of the graph that begins now records; nullptr: none does.
  std::shared_ptr<Trace> to_record(const std::shared_ptr<const CompiledGraph>& graph) const;
  // The trace that was begun last; nullptr: there was none.
  std::shared_ptr<const Trace> latest() const;
  // Returns the trace of latest(). Throws EVN_ERROR_WRONG_STATE where there was none.
  std::shared_ptr<const Trace> recorded() const;

 private:
  mutable Mutex mutex_;  // guards latest_
  std::shared_ptr<Trace> latest_;
  std::atomic<bool> is_on_{false};  // runs that begin now record into latest_
};

}  // namespace evn
