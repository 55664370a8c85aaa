// How many multiply-adds a node takes for given shapes: one table by operator, for estimates (inspect) and for the figures of
// kernels.
#pragma once

#include <span>

#include "core/graph.h"

namespace evn {

// Those of the products that the operator is defined by; 0 for operators without any (element-wise ones, moves, pools). All dims
// must be known. Looks at attributes as the model gives them, and at the node's names only: the node need not be validated. In
// double: an estimate cannot overflow.
double multiply_adds(const Node& node, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs);

}  // namespace evn
