// The operator that graph/passes/fuse_attention leaves in the place of a scaled dot-product attention: its attributes, and how its
// operands lie.
#pragma once

#include "ops/merge.h"

namespace evn {

inline constexpr const char kFusedAttention[] = "Attention";  // of the domain of Merge

struct FusedAttentionAttr {
  enum : int { kScale, kQPerm, kKPerm, kVPerm, kYPerm, kQView, kKView, kVView };
};
struct FusedAttentionInput {
  enum : int { kQ, kK, kV, kMask };
};

// A tensor seen as [batch, heads, steps, depth]: element (i...) is element offset + sum of i[a] * step[a] of it. Steps of axes of 1
// are 0. While a model loads dims may be -1, and then the steps mean nothing.
struct AttentionOperand {
  std::int64_t dims[4] = {};
  std::int64_t step[4] = {};
  std::int64_t offset = 0;
};

struct FusedAttentionSizes {
  AttentionOperand q, k, v;
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, depth = 0, value_depth = 0;
  std::int64_t y_step[4] = {};     // of [batch, heads, queries, value_depth]
  std::int64_t mask_step[4] = {};  // of [batch, heads, queries, keys]
};

// The inputs' shapes, then what follows from them. Throws what the shape rule throws.
FusedAttentionSizes fused_attention_sizes(const Node& node, const Shape& q, const Shape& k, const Shape& v, const Shape* mask);

}  // namespace evn
