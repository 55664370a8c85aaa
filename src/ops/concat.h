// Concat: attribute indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct ConcatAttr {
  enum : int { kAxis };
};

}  // namespace evn
