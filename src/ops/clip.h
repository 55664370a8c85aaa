// Clip: where its bounds come from.
#pragma once

#include "ops/op.h"

namespace evn {

// Before 11 the bounds are attributes; from 11 they are the optional scalar inputs 1 and 2.
struct ClipAttr {
  enum : int { kMin, kMax };
};
inline bool clip_bounds_are_inputs(const Node& node) { return node.op->max_inputs == 3; }

}  // namespace evn
