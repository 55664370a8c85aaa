// Models that the configuration names (`models:`): each is loaded, made and warmed when it is first asked for.
// docs/decisions/0061-models-by-name.md
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "runtime/live/live_session.h"

namespace evn {

// The sessions of a runtime's models, as long as the host holds the runtime: they keep it alive, so it must not own them. From any
// thread.
class DeployedSessions {
 public:
  // The session of the model of that name; the first call makes it, and those that come meanwhile wait. Throws
  // EVN_ERROR_INVALID_ARGUMENT for no such name, and for nothing else; EVN_ERROR_WRONG_STATE where the calling thread would wait
  // for itself; EVN_ERROR_FORKED; and, naming the model and its line, what loading a model, making a session and running it throw.
  std::shared_ptr<LiveSession> get(const std::shared_ptr<Runtime>& runtime, const char* name);
  // Lets go of those that the settings do not name.
  void keep_named(const Settings& settings);

 private:
  struct Slot {
    std::string name;
    std::shared_ptr<LiveSession> session;  // null: not yet
    bool loading = false;
    std::uint32_t loading_in = 0;  // the process whose thread does it
    std::thread::id loader;
    const Slot* waits_for = nullptr;  // while it loads: what its loader waits for
  };
  class Loading;

  Slot& slot_of(const char* name);
  void wait_for(std::unique_lock<Mutex>& lock, const Slot& slot, const char* name);
  void set_waiting(const Slot* slot);

  Mutex mutex_;  // guards the slots; held for moments
  Condition changed_;
  std::vector<std::unique_ptr<Slot>> slots_;  // of names that have been asked for
};

}  // namespace evn
