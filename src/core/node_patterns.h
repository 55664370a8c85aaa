// Patterns for nodes (base/text.h), of which there may be as many as nodes: those that are names are looked up.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/graph.h"
#include "core/name_map.h"

namespace evn {

class NodePatterns {
 public:
  // The patterns outlive it.
  explicit NodePatterns(std::span<const std::string> patterns);

  // The first pattern that is for the node; nullptr: none. `with_fused`: or is a glob of the name of a node that was folded into
  // it.
  const std::string* find(const Node& node, bool with_fused) const;

 private:
  std::span<const std::string> patterns_;
  std::unordered_map<std::string_view, std::size_t, KeyedHash> names_;  // number of the first pattern that is the name
  std::vector<std::size_t> others_;                                     // numbers of all that are no names
};

}  // namespace evn
