// Gemm: attribute indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct GemmAttr {
  enum : int { kAlpha, kBeta, kTransA, kTransB };
};

}  // namespace evn
