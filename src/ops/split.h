// Split: attribute indices. The output shapes hold the sizes, so a kernel needs only the axis.
#pragma once

#include "ops/op.h"

namespace evn {

// Before 13 the sizes are the attribute kSplit; from 13 they are input 1; from 18 there is kNumOutputs.
struct SplitAttr {
  enum : int { kAxis, kSplit, kNumOutputs = 1 };
};

}  // namespace evn
