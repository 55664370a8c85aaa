// How fast devices are at the nodes that they share, as it was measured while a session ran. It stays with the session when another
// placement takes over.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"

namespace evn {

class SplitSpeeds {
 public:
  // Nanoseconds of a unit (graph/cut_node.h) of the node on the device; none: it has not been measured.
  std::optional<double> of(const std::string& node, const std::string& device) const {
    const std::lock_guard<Mutex> lock(mutex_);
    const auto it = unit_ns_.find({node, device});
    return it == unit_ns_.end() ? std::nullopt : std::optional(it->second);
  }

  // Returns what counts from now on: half of it is the latest measurement.
  double add(const std::string& node, const std::string& device, double unit_ns) {
    const std::lock_guard<Mutex> lock(mutex_);
    double& ns = unit_ns_.try_emplace({node, device}, unit_ns).first->second;
    return ns = (ns + unit_ns) / 2;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, double> unit_ns_;
};

}  // namespace evn
