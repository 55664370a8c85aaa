// Watches how long the parts of split nodes take, in a few of a session's runs, and tells when other shares would be faster.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "runtime/lower/compile.h"
#include "runtime/run/trace.h"
#include "runtime/split/split_speeds.h"

namespace evn {

class SplitWatch {
 public:
  // Null where the graph has no node in parts.
  static std::unique_ptr<SplitWatch> make(const CompiledGraph& graph);

  // Called once for each run that begins: what records it, or null where it is not to be measured. Never throws: a run that cannot
  // be measured is not.
  std::shared_ptr<Trace> begin_run() noexcept;

  // Takes the times of such a run, which has ended. True: for the second time running other shares would have the runs end a tenth
  // earlier, as far as they wait for split nodes.
  bool note(const Trace& trace, SplitSpeeds& speeds);

  // Shares as they are in the graph, for explain.
  struct Share {
    std::string node;  // of the model
    std::string device;
    std::int64_t units = 0, all = 0;  // its own, and the node's (graph/cut_node.h)
    double part_ns = 0;               // latest; 0: not measured
  };
  std::vector<Share> shares() const;

 private:
  explicit SplitWatch(const CompiledGraph& graph) : graph_(graph) {}
  struct Part {
    std::int32_t node = -1;  // in the graph
    std::size_t split = 0;
    std::string device;
    std::int64_t units = 0;
    double latest_ns = 0;  // guarded by mutex_
  };
  void find_parts();

  const CompiledGraph& graph_;
  std::vector<std::string> splits_;  // names of the nodes that are split
  std::vector<Part> parts_;          // those of a node one after the other
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<bool> again_{false};  // the next run is to be measured as well
  mutable Mutex mutex_;
  bool seen_ = false;  // the latest measurement, too, was for other shares
};

}  // namespace evn
