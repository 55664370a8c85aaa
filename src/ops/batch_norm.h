// BatchNormalization: attribute and input indices.
#pragma once

#include <algorithm>

#include "ops/op.h"

namespace evn {

struct BatchNormAttr {
  enum : int { kEpsilon, kMomentum, kMode };  // spatial or training_mode
};
struct BatchNormInput {
  enum : int { kX, kScale, kBias, kMean, kVariance };
};

// Whether the node computes with the moments of its input: as its mode says, and before 14 when it has outputs for them.
inline bool batch_norm_trains(const Node& node) {
  if (node.op->since >= 14) return attr_int(node, BatchNormAttr::kMode) != 0;
  return std::any_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId v) { return v != kNoValue; });
}

// Whether each element of a sample has parameters of its own, not each channel (before 9, spatial = 0).
inline bool batch_norm_by_element(const Node& node) { return node.op->since < 9 && attr_int(node, BatchNormAttr::kMode) != 1; }

// Why a kernel for inference with parameters per channel does not take the node; nullptr when it does.
inline const char* why_not_plain_batch_norm(const Node& node) {
  if (batch_norm_trains(node)) return "not in training mode";
  return batch_norm_by_element(node) ? "only with parameters per channel" : nullptr;
}

}  // namespace evn
