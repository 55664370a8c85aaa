// MatMul: how its kernels walk the batch.
#pragma once

#include "base/checked.h"
#include "ops/op.h"

namespace evn {

// Elements of one matrix of an operand; a vector is one.
inline std::int64_t matmul_matrix_elements(const Shape& s) { return s.rank() >= 2 ? s.elements(s.rank() - 2, s.rank()) : s[0]; }

// Strides of an operand's batch axes, aligned to the right of the output's `rank` ones, where a matrix counts as `unit`; 0 where it
// is broadcast.
inline void matmul_batch_strides(const Shape& s, int rank, std::int64_t unit, std::int64_t* strides) {
  const int own = s.rank() > 2 ? s.rank() - 2 : 0;
  for (int i = rank - 1; i >= 0; --i) {
    const int axis = i - (rank - own);
    const std::int64_t dim = axis < 0 ? 1 : s[axis];
    strides[i] = dim == 1 ? 0 : unit;
    unit = checked_mul(unit, dim);
  }
}

}  // namespace evn
