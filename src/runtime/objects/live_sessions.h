// The sessions of a runtime that follow its settings.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/prune_schedule.h"
#include "runtime/objects/settings.h"

namespace evn {

class LiveSession;
class Runtime;

class LiveSessions {
 public:
  // Gives the runtime another configuration and all its sessions the placement that this says, or throws and has changed nothing.
  // docs/decisions/0071-reconfiguration.md
  void reconfigure(const std::shared_ptr<Runtime>& runtime, Config config);

 private:
  friend class LiveSession;
  friend class Runtime;

  Mutex reconfiguring_;  // one thread at a time makes settings in the place of those that there are
  Mutex mutex_;          // guards all_, and that what is in it has the runtime's settings
  std::vector<std::weak_ptr<LiveSession>> all_;
  PruneSchedule schedule_;  // of all_
};

}  // namespace evn
