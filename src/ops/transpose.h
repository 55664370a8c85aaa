// Transpose: the resolved permutation.
#pragma once

#include "ops/op.h"

namespace evn {

struct TransposeAttr {
  enum : int { kPerm };
};

// Output axis i is input axis perm[i]; without the attribute the axes are reversed. Throws EVN_ERROR_INVALID_MODEL.
void transpose_perm(const Node& node, int rank, int* perm);

}  // namespace evn
