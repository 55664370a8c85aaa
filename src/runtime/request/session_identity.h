// What stays of a session when another placement takes over: its requests and its statistics.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/run_scheduler.h"
#include "runtime/cost/split_speeds.h"
#include "runtime/objects/run_statistics.h"
#include "runtime/request/session_requests.h"

namespace evn {

class Session;

// Interface that replaces the placement of a session in use; live/live_session.h implements it.
class PlacementOwner {
 public:
  // Returns the current session. From any thread.
  virtual std::shared_ptr<Session> current() const = 0;
  // Returns the session that takes the place of `failed`, which has lost a device. Another thread may have made it already, or make
  // it now: then it waits, until `stop`. Throws the errors of making a session.
  virtual std::shared_ptr<Session> without_lost_devices(const Session& failed, const StopCondition& stop) = 0;
  // Has a thread of its own make a session with shares of split nodes by what was measured last, which takes the place of
  // `measured` if that is still the one of now. Does nothing while such a thread is at work, or if the host has an executor.
  virtual void share_anew(const Session& measured) = 0;

 protected:
  ~PlacementOwner() = default;
};

struct SessionIdentity {
  SessionIdentity(StatisticsList* list, std::string name, int concurrency)
      : requests(concurrency),
        group(std::make_shared<RunGroup>(concurrency)),
        statistics(list, std::move(name), requests.waiting_count()) {}

  SessionRequests requests;
  const std::shared_ptr<RunGroup> group;  // concurrency limit of the runs of all placements
  RunStatistics statistics;
  std::atomic<std::uint64_t> state_bytes{0};  // memory of the session's states
  struct Recorded {                           // for replay
    std::atomic<std::uint64_t> session{0};    // number of the session in the names of its files; 0: it has none yet
    std::atomic<std::uint64_t> runs{0};
  } recorded;
  SplitSpeeds speeds;                   // of devices at the nodes that they share
  std::weak_ptr<PlacementOwner> owner;  // none: of a session that keeps the placement that it has
};

// Has runs and requests of the session's identity executed as this placement wants, from now on.
void apply_concurrency(Session& session) noexcept;

}  // namespace evn
