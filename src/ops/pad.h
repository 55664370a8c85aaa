// Pad: the resolved pads.
#pragma once

#include "ops/op.h"

namespace evn {

// The mode stands first in all versions; kPads and kValue are attributes before 11, inputs 1 and 2 (and axes, 3, from 18) later.
struct PadAttr {
  enum : int { kMode, kPads, kValue };
};

enum class PadMode { kConstant, kReflect, kEdge, kWrap };
PadMode pad_mode(const Node& node);

// The position of an axis of n elements that position p, counted from its first, shows; -1: the constant.
std::int64_t pad_source(PadMode mode, std::int64_t p, std::int64_t n);

struct PadAmounts {
  std::int64_t begin[kMaxRank] = {};
  std::int64_t end[kMaxRank] = {};
};

// `inputs` as in a ReferenceContext. Negative pads crop. Throws EVN_ERROR_INVALID_MODEL.
PadAmounts resolve_pads(const Node& node, std::span<const ConstTensor> inputs, int rank);

}  // namespace evn
