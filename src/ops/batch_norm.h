// BatchNormalization: attribute and input indices.
#pragma once

#include "ops/op.h"

namespace evn {

struct BatchNormAttr {
  enum : int { kEpsilon, kMomentum, kMode };  // spatial or training_mode
};
struct BatchNormInput {
  enum : int { kX, kScale, kBias, kMean, kVariance };
};

// Whether the node computes with the moments of its input.
inline bool batch_norm_trains(const Node& node) { return node.op->since >= 14 && attr_int(node, BatchNormAttr::kMode) != 0; }

}  // namespace evn
