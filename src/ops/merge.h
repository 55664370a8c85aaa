// The operator that graph/inline_if leaves in the place of an If.
#pragma once

#include "ops/op.h"

namespace evn {

inline bool is_merge(const Node& node) { return node.op != nullptr && (node.op->flags & kOpMerge) != 0; }
inline int merge_number(const Node& node) { return static_cast<int>(attr_int(node, 0)); }

}  // namespace evn
