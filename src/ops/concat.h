// Concat: attribute indices and shape.
#pragma once

#include "ops/op.h"

namespace evn {

struct ConcatAttr {
  enum : int { kAxis };
};

// The inputs first, first + step, ... one after the other along `axis`. Throws where their ranks or other dims differ.
Shape concat_shape(const InferContext& c, int first, int step, std::int64_t axis);

}  // namespace evn
