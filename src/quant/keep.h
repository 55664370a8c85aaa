// Nodes that a caller wants to stay as they are.
#pragma once

#include <string>

#include "core/node_patterns.h"

namespace evn {

// Returns true if one of the patterns, globs of names or "type:Softmax", names the node; the reason then says which.
inline bool is_kept_by(const NodePatterns& keep, const Node& node, std::string* reason) {
  const std::string* const pattern = keep.find(node, false);
  if (pattern != nullptr) *reason = "kept by \"" + *pattern + "\"";
  return pattern != nullptr;
}

}  // namespace evn
