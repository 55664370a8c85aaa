// LayerNormalization, RMSNormalization, GroupNormalization: attribute indices, and the precision in which they compute.
#pragma once

#include "ops/op.h"

namespace evn {

struct LayerNormAttr {
  enum : int { kAxis, kEpsilon, kStashType };
};
struct GroupNormAttr {
  enum : int { kEpsilon, kGroups, kStashType };  // InstanceNormalization: the first; GroupNormalization before 21: the first two
};

// `stash_type` of the normalizations, the precision in which mean and variance are computed. The references compute in float64, so
// that float32 and, where `doubles`, float64 are honoured; rounding to half precision on the way is refused. For rules of dtypes,
// which are asked when a model is loaded whatever is known of its shapes.
void require_stash_type(const Node& node, int index, bool doubles);

// Whether kernels that compute in float32 may take the node.
inline bool stash_is_float32(const Node& node, int index) {
  return !attr_given(node, index) || attr_int(node, index) == EVN_DTYPE_FLOAT32;
}
inline constexpr const char* kStashRefusal = "stash_type is not float32";

}  // namespace evn
