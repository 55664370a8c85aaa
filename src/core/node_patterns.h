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

  // Returns the first pattern that is for the node, or nullptr. A part of a node that devices share has the name of that node here.
  // With `with_fused`, a glob that fits the name of a node that was folded into this one counts as well.
  const std::string* find(const Node& node, bool with_fused) const;

 private:
  std::span<const std::string> patterns_;
  std::unordered_map<std::string_view, std::size_t, KeyedHash> names_;  // number of the first pattern that is the name
  std::vector<std::size_t> others_;                                     // numbers of all that are no names
};

}  // namespace evn
