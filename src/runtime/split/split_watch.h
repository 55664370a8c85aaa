// Watches how long the parts of split nodes take, in a few of a session's runs, and has the shares changed when others would be
// faster.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/lower/compile.h"
#include "runtime/request/session_identity.h"
#include "runtime/run/trace.h"
#include "runtime/session/run_stage.h"

namespace evn {

class SplitWatch final : public RunStage {
 public:
  // Null where the graph has no node in parts. `identity`: of the session; it outlives this.
  static std::unique_ptr<SplitWatch> make(const CompiledGraph& graph, SessionIdentity& identity);

  void run(Session& session, StagedRun& run, const RunRest& rest) override;
  void explain(DividedWork* work) const override;

 private:
  SplitWatch(const CompiledGraph& graph, SessionIdentity& identity) : graph_(graph), identity_(identity) {}
  struct Part {
    std::int32_t node = -1;  // in the graph
    std::size_t split = 0;
    std::string device;
    std::int64_t units = 0;
    double latest_ns = 0;  // guarded by mutex_
  };
  void find_parts();
  // Called once for each run that begins: what records it, or null where it is not to be measured. Never throws: a run that cannot
  // be measured is not.
  std::shared_ptr<Trace> begin_run() noexcept;
  void note_run(const Session& session, const Trace& trace) noexcept;
  // Takes the times of such a run, which has ended. True: for the second time running other shares would have the runs end a tenth
  // earlier, as far as they wait for split nodes.
  bool note(const Trace& trace);

  const CompiledGraph& graph_;
  SessionIdentity& identity_;
  std::vector<std::string> splits_;  // names of the nodes that are split
  std::vector<Part> parts_;          // those of a node one after the other
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<bool> again_{false};  // the next run is to be measured as well
  mutable Mutex mutex_;
  bool seen_ = false;  // the latest measurement, too, was for other shares
};

}  // namespace evn
