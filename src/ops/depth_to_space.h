// DepthToSpace and SpaceToDepth as a transposition of six axes.
#pragma once

#include "ops/op.h"

namespace evn {

struct BlockAttr {
  enum : int { kBlock, kMode };
};

// What either does with x: its elements, seen as `split`, in the order of `perm`.
struct BlockMove {
  Shape split;
  int perm[6];
};
BlockMove depth_to_space(const Node& node, const Shape& x);
BlockMove space_to_depth(const Node& node, const Shape& x);

}  // namespace evn
