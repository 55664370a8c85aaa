// Scheduling state of one thread: the cores it holds for runs, and how soon it returns after a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/lent_core.h"
#include "base/scheduling_constants.h"

namespace evn {

class RunScheduler;
class ScheduledRun;

struct RunThread {
  // Runs of the thread that have cores, at most one of each scheduler. A run that an operator starts computes on the core of the
  // operator's run: it would otherwise wait for a core that only its own end can free.
  struct HeldCore {
    const RunScheduler* scheduler;
    ScheduledRun* run;
  };

  // Use of the scheduler for which the thread has waited last.
  struct Turn {
    const RunScheduler* scheduler;
    std::uint64_t begin_ns;  // time at which the thread last got a core for which it had waited
    std::uint64_t left_ns;   // time at which the thread last left a core while others waited; 0: it woke another thread
    int quick_returns;       // how often in a row it returned at once
  };

  // Prediction of whether the thread returns soon after a run.
  struct Returns {
    const RunScheduler* scheduler;
    std::uint64_t linger;  // number of its last lingering; 0: none since it returned
    int late, skip;        // how often in a row it was late; number of runs for which it is not expected
    void note(bool in_time) {
      linger = 0;
      late = in_time ? 0 : std::min(late + 1, scheduling::kMaxLateReturns);
      skip = in_time ? 0 : 1 << late;
    }
  };

  HeldCore held[LentCore::kMostSchedulers];
  Turn turn;
  Returns returns;
  bool in_body;  // the thread is in a body of a job: jobs that the body asks for are done by this thread alone

  bool holds_core_of(const RunScheduler* scheduler) const {
    return std::any_of(std::begin(held), std::end(held), [&](const HeldCore& h) { return h.scheduler == scheduler; });
  }
  // Entry of `run`, or a free entry for nullptr. nullptr: there is none.
  HeldCore* find(const ScheduledRun* run) {
    HeldCore* const h = std::find_if(std::begin(held), std::end(held), [&](const HeldCore& e) { return e.run == run; });
    return h != std::end(held) ? h : nullptr;
  }
  void hold(const RunScheduler* scheduler, ScheduledRun* run) {
    if (HeldCore* const h = find(nullptr)) *h = {scheduler, run};
  }
  void release(const ScheduledRun* run) {
    if (HeldCore* const h = find(run)) *h = {};
  }

  // State of the calling thread.
  static RunThread& current() noexcept { return t_current; }

 private:
  [[gnu::tls_model("initial-exec")]] static constinit thread_local RunThread t_current;
};

}  // namespace evn
