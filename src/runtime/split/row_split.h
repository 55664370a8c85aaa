// `placement.split`: the rows of one run's batch are computed by several devices at a time, each of which takes as many as its
// speed allows.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "runtime/placement/placement.h"
#include "runtime/rows/row_proofs.h"
#include "runtime/session/run_stage.h"

namespace evn {

// How many of `rows` each device computes, so that the last of them ends as early as it can; `row_ns`: what a row takes each.
std::vector<std::int64_t> share_rows(std::int64_t rows, std::span<const double> row_ns);

class RowSplit final : public RunStage {
 public:
  // `graph`: of the session whose runs are split. Makes a session of the model on each of the devices, with the CPU for nodes that
  // a device does not take. Throws EVN_ERROR_UNSUPPORTED, with the place in the configuration and the node, where rows of a batch
  // are not known to be independent.
  RowSplit(const CompiledGraph& graph, const SessionRequest& request);

  // Runs the parts and puts the outputs together; leaves the run to the rest where it has fewer than two rows, a state, tensors
  // that do not lie on the host, outputs of which it is not proven where their rows are, or a share whose rows are not proven to be
  // those of the whole batch.
  void run(Session& session, StagedRun& run, const RunRest& rest) override;
  void add_sessions(std::vector<const Session*>* sessions) const override;
  void explain(DividedWork* work) const override;

 private:
  struct Part;
  bool run_split(StagedRun& run);
  std::int64_t rows_of(std::span<const RunValue> inputs, std::span<const RunValue> outputs, const RunRequest& request) const;
  std::vector<TensorPtr> whole_outputs(std::span<const RunValue> outputs, const RunRequest& request, const RowOutputs& proof,
                                       std::int64_t rows) const;
  std::unique_ptr<Part> make_part(std::size_t device, std::int64_t first, std::int64_t rows, std::span<const RunValue> inputs,
                                  const std::vector<TensorPtr>& whole, const RowOutputs& proof, const RunRequest& request);
  void run_parts(const std::vector<std::unique_ptr<Part>>& parts) const;
  static void gather(const std::vector<std::unique_ptr<Part>>& parts, const RowOutputs& proof, const std::vector<TensorPtr>& whole);
  std::vector<std::int64_t> next_shares(std::int64_t rows);
  bool are_proven(std::span<const std::int64_t> shares, const RowInputs& row, const RowOutputs& whole);
  void note_times(const std::vector<std::unique_ptr<Part>>& parts);

  struct DeviceSession {
    std::string device;
    std::shared_ptr<Session> session;
    double row_ns = 0;                     // guarded by mutex_, as all below
    std::int64_t rows = 0;                 // of the latest run
    std::vector<std::int64_t> rows_known;  // for which there has been a run, so that the next is not planned anew; oldest first
  };
  const CompiledGraph& graph_;
  const std::vector<int> axes_;  // per input
  std::vector<DeviceSession> devices_;
  RowProofs proofs_;
  mutable Mutex mutex_;
  std::uint64_t runs_ = 0;
};

}  // namespace evn
