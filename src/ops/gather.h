// Gather: attribute indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct GatherAttr {
  enum : int { kAxis };
};

}  // namespace evn
