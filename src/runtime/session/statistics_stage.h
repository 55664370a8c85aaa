// The stage that counts the runs of a session, and how long they wait and compute.
#pragma once

#include "runtime/session/run_stage.h"

namespace evn {

class StatisticsStage final : public RunStage {
 public:
  // `statistics` outlives it.
  explicit StatisticsStage(RunStatistics& statistics) : statistics_(statistics) {}

  void run(Session& /*session*/, StagedRun& run, const RunRest& rest) override {
    if (run.note != nullptr) return rest(run);  // it has begun in another session of the same identity
    RunNote note(statistics_, run.request.priority, run.request.submitted_ns, run.request.times);
    run.note = &note;
    note.follow([&] { rest(run); });
  }

 private:
  RunStatistics& statistics_;
};

}  // namespace evn
