// What stays of a session when another placement takes over: its requests and its statistics.
#pragma once

#include <memory>
#include <string>

#include "runtime/request/run_statistics.h"
#include "runtime/request/session_requests.h"
#include "runtime/split/split_speeds.h"

namespace evn {

class LiveSession;

struct SessionIdentity {
  SessionIdentity(StatisticsList* list, std::string name, int concurrency)
      : requests(concurrency), statistics(list, std::move(name), requests) {}

  SessionRequests requests;
  RunStatistics statistics;
  SplitSpeeds speeds;               // of devices at the nodes that they share
  std::weak_ptr<LiveSession> live;  // that replaces placements; none: of a session that keeps the one it has
};

}  // namespace evn
