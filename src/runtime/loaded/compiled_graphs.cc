#include "runtime/loaded/compiled_graphs.h"

#include <algorithm>

namespace evn {

void SharedPlans::add(const std::shared_ptr<Plan>& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_.prune(entries_, [](const Entry& e) { return e.plan.expired(); });
  entries_.push_back({plan});
}

bool SharedPlans::withdraw(const std::shared_ptr<Plan>& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return !e.plan.owner_before(plan) && !plan.owner_before(e.plan); });
  if (it == entries_.end()) return true;
  if (it->found) return false;
  entries_.erase(it);
  return true;
}

std::shared_ptr<const CompiledGraph> CompiledGraphs::find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = entries_.find(key);
  return it != entries_.end() ? it->second.lock() : nullptr;
}

std::shared_ptr<const CompiledGraph> CompiledGraphs::add(std::string key, std::shared_ptr<const CompiledGraph> made) {
  std::shared_ptr<const CompiledGraph> other;  // let go of without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  schedule_.prune(entries_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const CompiledGraph>& entry = entries_[std::move(key)];
  if ((other = entry.lock())) return other;
  entry = made;
  return made;
}

}  // namespace evn
