// Stages around the runs of a session. Each is a feature of runs with a room of its own; stages/make_session.cc puts them in their
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "runtime/objects/run_statistics.h"
#include "runtime/run/host_run.h"
#include "runtime/run/output_listener.h"

namespace evn {

class HeldValues;
class Session;
class State;
class Trace;

struct RunRequest {
  bool allow_copies = false;
  std::uint64_t timeout_ns = 0;  // 0: the configuration's
  std::uint64_t random_seed = 0;
  StopCondition stop = {};  // its deadline, or the timeout where that is earlier
  std::int32_t priority = 0;
  bool outputs_on_device = false;     // outputs that are not given lie where the plan makes them
  bool overwrite_inputs = false;      // outputs may be given tensors that are inputs
  std::shared_ptr<State> state = {};  // nullable
  std::uint64_t submitted_ns = 0;     // of a request; 0: its caller waits for it
  RunTimes* times = nullptr;  // nullable: the run is not counted, and who gave this counts the requests of which it is one run
  bool is_warm =
      false;  // warm run of a session that is not in use yet: it fails if a device is lost, and no concurrency limit holds for it
  std::vector<std::uint8_t> skipped = {};  // per output: 1: not wanted; empty: all are
  OutputListener listener = {};
};
inline bool is_skipped(std::span<const std::uint8_t> skipped, std::size_t output) {
  return !skipped.empty() && skipped[output] != 0;
}

// A run on its way through the stages. A stage may give the next ones another.
struct StagedRun {
  std::span<const RunValue> inputs;
  std::span<RunValue> outputs;  // a slot per graph output; empty ones are filled with new values on success only
  const RunRequest& request;
  RunNote* note = nullptr;            // counts the run; nullable
  const HeldValues* held = nullptr;   // gives and takes some of the values in the caller's place; nullable
  std::shared_ptr<Trace> trace = {};  // records the run where the host traces nothing; nullable
  std::uint64_t moves = 0;            // how many sessions have lost a device in it
};

// The rest of a run behind a stage: the next stages, and at last the computation of the model.
class RunRest {
 public:
  RunRest(Session& session, std::size_t next) : session_(session), next_(next) {}
  // Does the rest of the run. Throws what runs throw.
  void operator()(StagedRun& run) const;

 private:
  Session& session_;
  const std::size_t next_;
};

// Work that stages divide among several devices, for explain.
struct DividedWork {
  // Rows of batches that a device computes.
  struct Rows {
    std::string device;
    std::int64_t rows;  // of the latest run
    double row_ns;      // 0: not measured yet
  };
  // Part of a node that a device computes, as it is in the graph.
  struct Units {
    std::string node;  // of the model
    std::string device;
    std::int64_t units = 0, all = 0;  // its own, and the node's (graph/cut_node.h)
    double part_ns = 0;               // latest; 0: not measured
  };
  std::optional<std::vector<Rows>> rows;  // none: batches are not split
  std::vector<Units> units;
};

class RunStage {
 public:
  virtual ~RunStage() = default;
  // Does a run of the session: with what stands behind this stage, or in its place. Called by several threads at a time. Throws
  // what runs throw.
  virtual void run(Session& session, StagedRun& run, const RunRest& rest) = 0;
  // Adds sessions of its own that compute runs, whose devices and memory count as those of the session.
  virtual void add_sessions(std::vector<const Session*>* /*sessions*/) const {}
  // Adds the work that it divides among devices.
  virtual void explain(DividedWork* /*work*/) const {}
};

}  // namespace evn
