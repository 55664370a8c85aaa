// Whether threads that help are worth it for short runs: between the jobs of such runs they spin, on a core that others could use.
// docs/decisions/0055-run-scheduler.md
#pragma once

#include <atomic>
#include <cstdint>

#include "base/scheduling_constants.h"

namespace evn {

// One for the runs of a plan, which are alike. From any thread.
class HelpWorth {
 public:
  // Whether the run that begins is to compute on its own thread alone.
  bool begin_alone() {
    std::uint32_t left = alone_.load(std::memory_order_relaxed);
    while (left != 0) {
      if (alone_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  // A run that helpers could join has taken `run_ns`; what they did would have taken its own thread `saved_ns` more.
  void note(std::uint64_t run_ns, std::uint64_t saved_ns) {
    if (run_ns >= scheduling::kShortRunNs) return;
    const std::uint64_t saved = saved_ns_.fetch_add(saved_ns, std::memory_order_relaxed) + saved_ns;
    const std::uint64_t measured = measured_ns_.fetch_add(run_ns, std::memory_order_relaxed) + run_ns;
    if (measured < scheduling::kHelpSampleNs) return;
    saved_ns_.store(0, std::memory_order_relaxed);
    measured_ns_.store(0, std::memory_order_relaxed);
    if (saved < measured / scheduling::kMinHelpShare) alone_.store(scheduling::kRunsWithoutHelp, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> alone_{0};
  std::atomic<std::uint64_t> measured_ns_{0}, saved_ns_{0};
};

}  // namespace evn
