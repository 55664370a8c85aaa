// Another configuration for a runtime with sessions: all that it takes is made before anything changes.
#include <unordered_set>

#include "base/error.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/live/live_session.h"
#include "runtime/live/proposal.h"

namespace evn {
namespace {

struct Replacement {
  std::shared_ptr<LiveSession> live;
  std::shared_ptr<Session> session;
};

}  // namespace

// Those who wait for a session's lock before that of all sessions (LiveSession::without_lost_devices) never have both the other way
// round: sessions are made here without a lock but `reconfiguring_`, and are taken into use under that of all sessions.
void LiveSessions::reconfigure(const std::shared_ptr<Runtime>& runtime, Config config) {
  const std::lock_guard<Mutex> one(reconfiguring_);
  const std::uint64_t begin_ns = os::now_ns();
  Proposal proposal(*runtime, std::move(config));
  proposal.open();
  std::vector<Replacement> made;
  std::unordered_set<const LiveSession*> is_made;
  for (;;) {
    // References outlive the lock: the destructor of a session joins a thread that may wait for the lock.
    std::vector<std::shared_ptr<LiveSession>> alive, missing;
    {
      std::unique_lock<Mutex> lock(mutex_);
      alive.reserve(all_.size());
      for (const std::weak_ptr<LiveSession>& weak : all_) alive.push_back(weak.lock());
      for (const std::shared_ptr<LiveSession>& live : alive) {
        if (live != nullptr && !is_made.contains(live.get())) missing.push_back(live);
      }
      if (missing.empty()) {
        proposal.check_limits();
        proposal.adopt();
        for (Replacement& r : made) r.live->replace(std::move(r.session), "the runtime is reconfigured");
        break;
      }
    }
    for (std::shared_ptr<LiveSession>& live : missing) {
      std::shared_ptr<Session> session = live->make(runtime, proposal.settings());
      is_made.insert(live.get());
      made.push_back({std::move(live), std::move(session)});
    }
  }
  runtime->dispatcher().look_again();  // sessions may execute more requests at a time than before
  const SettingsPtr settings = proposal.settings();
  runtime->dispatcher().set_most_waiting(settings->config.limits.queued_requests);
  const std::uint64_t duration_ns = os::now_ns() - begin_ns;
  LogEvent(runtime->log(), EVN_LOG_INFO, "runtime.reconfigured")
      .field("config", settings->config.source.c_str())
      .field("sessions", made.size())
      .field("devices", settings->devices.size())
      .field("duration_ns", duration_ns)
      .write("reconfigured: %zu sessions by %s", made.size(),
             settings->config.source.empty() ? "no configuration" : settings->config.source.c_str());
}

}  // namespace evn
