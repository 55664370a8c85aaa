// What kernels/matmul.cl wants to know of a product of matrices.
#pragma once

#include "device/kernel.h"

namespace evn {

// The struct that matmul.cl takes, laid out as there.
struct Product {
  static constexpr int kMaxBatchRank = kMaxRank - 2;
  std::int64_t m, n, k;
  std::int64_t a_row, a_step;
  std::int64_t panels;
  std::int64_t c_row, c_column;
  float alpha, beta;
  std::int32_t has_c, rows_first, rank;
  std::int64_t batch[kMaxBatchRank], a_stride[kMaxBatchRank], b_stride[kMaxBatchRank];
};

// Gemm's C, input number `input`: absent, or broadcast along either axis.
inline void set_addend(const OpDesc& desc, int input, float beta, Product* p) {
  p->beta = beta;
  p->has_c = desc.has_input(input) ? 1 : 0;
  if (p->has_c == 0) return;
  const Shape& c = desc.inputs[input].shape;
  const std::int64_t columns = c.rank() == 0 ? 1 : c[c.rank() - 1];
  const std::int64_t rows = c.rank() == 2 ? c[0] : 1;
  p->c_column = columns == 1 ? 0 : 1;
  p->c_row = rows == 1 ? 0 : columns;
}

}  // namespace evn
