// Nodes that a caller wants to stay as they are.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"
#include "core/graph.h"

namespace evn {

// Returns true if one of the patterns, globs of names or "type:Softmax", names the node; the reason then says which.
inline bool is_kept_by(const std::vector<std::string>& keep, const Node& node, std::string* reason) {
  for (const std::string& pattern : keep) {
    if (!matches_node(pattern, node.name, node.domain, node.op_type)) continue;
    *reason = "kept by \"" + pattern + "\"";
    return true;
  }
  return false;
}

}  // namespace evn
