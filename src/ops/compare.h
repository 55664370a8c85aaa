// Attribute indices of IsInf, for kernels.
#pragma once

namespace evn {

struct IsInfAttr {
  enum : int { kDetectNegative, kDetectPositive };
};

}  // namespace evn
