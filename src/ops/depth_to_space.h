// Attribute indices of DepthToSpace and SpaceToDepth.
#pragma once

#include "ops/op.h"

namespace evn {

struct BlockAttr {
  enum : int { kBlock, kMode };
};

}  // namespace evn
