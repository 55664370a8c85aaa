// The stage of sessions whose requests are joined: it has the batcher, which learns from it how long runs take.
#pragma once

#include "runtime/batch/batcher.h"
#include "runtime/session/run_stage.h"

namespace evn {

class BatchStage final : public RunStage {
 public:
  // Throws as the batcher does.
  BatchStage(const CompiledGraph& graph, const BatchingConfig& config) : batcher_(graph, config) {}

  Batcher& batcher() { return batcher_; }
  void run(Session& /*session*/, StagedRun& run, const RunRest& rest) override {
    const std::uint64_t begin = os::now_ns();
    rest(run);
    if (run.request.state == nullptr) batcher_.note_duration(os::now_ns() - begin);
  }

 private:
  Batcher batcher_;
};

}  // namespace evn
