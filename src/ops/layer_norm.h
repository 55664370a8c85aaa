// LayerNormalization: attribute indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct LayerNormAttr {
  enum : int { kAxis, kEpsilon, kStashType };
};

}  // namespace evn
