#include "core/node_patterns.h"

#include <algorithm>

#include "base/cancel.h"
#include "base/text.h"

namespace evn {

NodePatterns::NodePatterns(std::span<const std::string> patterns) : patterns_(patterns) {
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    cancellation_point(kNameWork);
    if (is_node_name(patterns[i])) names_.try_emplace(patterns[i], i);
    else others_.push_back(i);
  }
}

const std::string* NodePatterns::find(const Node& node, bool with_fused) const {
  const std::span<const std::string> fused = with_fused ? std::span<const std::string>(node.fused) : std::span<const std::string>();
  const std::string& own = node.part_of.empty() ? node.name : node.part_of;
  std::size_t first = patterns_.size();
  const auto look_up = [&](const std::string& name) {
    cancellation_point(kNameWork);
    if (const auto it = names_.find(name); it != names_.end()) first = std::min(first, it->second);
  };
  if (!names_.empty()) {
    look_up(own);
    for (const std::string& name : fused) look_up(name);
  }
  for (const std::size_t i : others_) {
    if (i >= first) break;
    cancellation_point(kNodeWork);
    const std::string& pattern = patterns_[i];
    const auto fits = [&](const std::string& name) { return glob_match(pattern, name); };
    if (matches_node(pattern, own, node.domain, node.op_type) || std::any_of(fused.begin(), fused.end(), fits)) return &pattern;
  }
  return first < patterns_.size() ? &patterns_[first] : nullptr;
}

}  // namespace evn
