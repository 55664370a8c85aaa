// The compiled graphs that sessions of a model have now: sessions that are made with the same options share one, and plans of it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/os/fork.h"
#include "base/prune_schedule.h"

namespace evn {

struct CompiledGraph;
struct Plan;

// The plans that sessions with one compiled graph have now.
class SharedPlans {
 public:
  // Throws std::bad_alloc.
  void add(const std::shared_ptr<Plan>& plan);
  // A plan that fits, which nobody changes from now on; or nullptr.
  template <typename F>
  std::shared_ptr<Plan> find(F&& fits) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Entry& e : entries_) {
      std::shared_ptr<Plan> plan = e.plan.lock();
      if (plan == nullptr || !fits(*plan)) continue;
      e.found = true;
      return plan;
    }
    return nullptr;
  }
  // Takes a plan out, that its only owner may change it. False: another session has found it.
  bool withdraw(const std::shared_ptr<Plan>& plan);

 private:
  struct Entry {
    std::weak_ptr<Plan> plan;
    bool found = false;
  };
  std::mutex mutex_;  // held for moments
  const os::HeldOverForks held_{mutex_};
  std::vector<Entry> entries_;
  PruneSchedule schedule_;  // of entries_
};

class CompiledGraphs {
 public:
  std::shared_ptr<const CompiledGraph> find(const std::string& key);
  // Returns what another thread has added for the key meanwhile, else `made`.
  std::shared_ptr<const CompiledGraph> add(std::string key, std::shared_ptr<const CompiledGraph> made);

 private:
  std::mutex mutex_;  // held for moments
  const os::HeldOverForks held_{mutex_};
  std::unordered_map<std::string, std::weak_ptr<const CompiledGraph>> entries_;
  PruneSchedule schedule_;  // of entries_
};

}  // namespace evn
