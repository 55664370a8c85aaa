// LRN's attributes and the channels that it looks at.
#pragma once

#include "ops/op.h"

namespace evn {

struct LrnAttr {
  enum : int { kAlpha, kBeta, kBias, kSize };
};

// Channels before and after one that count, clamped to the number of channels.
struct LrnWindow {
  std::int64_t before;
  std::int64_t after;
};
LrnWindow lrn_window(const Node& node, std::int64_t channels);

}  // namespace evn
