// Models that the configuration names (`models:`): each is loaded, made and warmed when it is first asked for.
// docs/decisions/0061-models-by-name.md
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/os/fork.h"
#include "runtime/session.h"

namespace evn {

// The sessions of a runtime's models, as long as the host holds the runtime: they keep it alive, so it must not own them. From any
// thread.
class DeployedSessions {
 public:
  // `count`: of the configuration's models.
  explicit DeployedSessions(std::size_t count) : slots_(count) {}

  // The session of the model of that name; the first call makes it, and those that come meanwhile wait. Throws
  // EVN_ERROR_INVALID_ARGUMENT for no such name, and for nothing else; EVN_ERROR_WRONG_STATE where the calling thread would wait
  // for itself; EVN_ERROR_FORKED; and, naming the model and its line, what loading a model, making a session and running it throw.
  std::shared_ptr<Session> get(const std::shared_ptr<Runtime>& runtime, const char* name);

 private:
  struct Slot {
    std::atomic<bool> ready{false};
    std::shared_ptr<Session> session;  // once it is ready it stays
    bool loading = false;
    std::uint32_t loading_in = 0;  // the process whose thread does it
    std::thread::id loader;
    const Slot* waits_for = nullptr;  // while it loads: what its loader waits for
  };
  class Loading;

  void wait_for(std::unique_lock<Mutex>& lock, const Slot& slot, const char* name);
  void set_waiting(const Slot* slot);

  Mutex mutex_;  // guards the slots; held for moments
  Condition changed_;
  std::vector<Slot> slots_;  // as Config::models
};

// Loads a model of the configuration, makes its session and warms it.
std::shared_ptr<Session> deploy_model(const std::shared_ptr<Runtime>& runtime, const ModelConfig& model);

}  // namespace evn
