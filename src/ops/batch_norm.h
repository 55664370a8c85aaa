// BatchNormalization: attribute and input indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct BatchNormAttr {
  enum : int { kEpsilon, kMomentum };
};
struct BatchNormInput {
  enum : int { kX, kScale, kBias, kMean, kVariance };
};

}  // namespace evn
