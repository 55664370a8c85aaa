// BatchNormalizationGradient and LayerNormalizationGradient: attribute and input indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct NormGradientInput {
  enum : int { kX, kScale, kDy, kMean, kVariance };  // the last two of BatchNormalizationGradient
};
struct BatchNormGradientAttr {
  enum : int { kEpsilon, kTrains };
};
struct LayerNormGradientAttr {
  enum : int { kEpsilon, kAxis };
};

}  // namespace evn
