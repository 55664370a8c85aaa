// Attribute indices of the element-wise operators of one input, for fusion and kernels.
#pragma once

#include "ops/op.h"

namespace evn {

struct LeakyReluAttr {
  enum : int { kAlpha };
};
struct GeluAttr {
  enum : int { kApproximate };
};
struct HardSigmoidAttr {
  enum : int { kAlpha, kBeta };
};
struct EluAttr {  // of Celu and ThresholdedRelu too; kGamma: of Selu
  enum : int { kAlpha, kGamma };
};
struct SwishAttr {
  enum : int { kAlpha };
};

}  // namespace evn
