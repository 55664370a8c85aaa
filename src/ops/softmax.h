// Softmax and LogSoftmax: the axes that they run over.
#pragma once

#include "ops/op.h"

namespace evn {

struct SoftmaxAttr {
  enum : int { kAxis };
};

// The input seen as [outer, length, inner]; the operator runs over `length`, whose elements lie `inner` apart. Before opset 13 all
// axes from `axis` on are one (inner is 1).
struct SoftmaxView {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
};
SoftmaxView softmax_view(const Node& node, const Shape& x);

}  // namespace evn
