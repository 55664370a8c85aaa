// How broadcast inputs are walked: neighbouring axes that all of them walk through in one stride are one.
#pragma once

#include "backends/opencl/kernels/support.h"

namespace evn {

template <int kInputs>
struct Broadcast {
  std::int32_t rank = 0;   // outer axes
  std::int64_t inner = 1;  // elements of the innermost axis
  std::int64_t rows = 1;   // product of the outer axes
  std::int64_t dim[kMaxRank] = {};
  std::int64_t stride[kInputs][kMaxRank] = {};  // 0 where an input is broadcast
  std::int32_t step[kInputs] = {};              // 0 or 1: along the innermost axis
};

// Strides of an input along the axes of the output, 0 where it is broadcast.
inline void broadcast_strides(const Shape& input, const Shape& output, std::int64_t* strides) {
  std::int64_t own[kMaxRank] = {};
  row_major_strides(input, own);
  const int shift = output.rank() - input.rank();
  for (int i = 0; i < output.rank(); ++i) strides[i] = i < shift || input[i - shift] == 1 ? 0 : own[i - shift];
}

template <int kInputs>
Broadcast<kInputs> merge_broadcast(const Shape* const (&inputs)[kInputs], const Shape& output) {
  std::int64_t strides[kInputs][kMaxRank];
  for (int k = 0; k < kInputs; ++k) broadcast_strides(*inputs[k], output, strides[k]);
  Broadcast<kInputs> b;
  int last = -1;
  for (int i = 0; i < output.rank(); ++i) {
    if (output[i] == 1) continue;
    bool merges = last >= 0;
    for (int k = 0; k < kInputs; ++k) merges = merges && b.stride[k][last] == strides[k][i] * output[i];
    if (!merges) b.dim[++last] = 1;
    b.dim[last] *= output[i];
    for (int k = 0; k < kInputs; ++k) b.stride[k][last] = strides[k][i];
  }
  b.rank = last < 0 ? 0 : last;
  if (last >= 0) b.inner = b.dim[last];
  for (int k = 0; k < kInputs; ++k) b.step[k] = last >= 0 && b.stride[k][last] != 0;
  for (int i = 0; i < b.rank; ++i) b.rows *= b.dim[i];
  return b;
}

// Writes the strides of two inputs into what a kernel is given.
template <typename P>
void merge_pair(const Shape& a, const Shape& b, const Shape& output, P* p) {
  const Broadcast<2> merged = merge_broadcast<2>({&a, &b}, output);
  p->rank = merged.rank;
  p->inner = merged.inner;
  p->rows = merged.rows;
  p->a_step = merged.step[0];
  p->b_step = merged.step[1];
  std::memcpy(p->dim, merged.dim, sizeof p->dim);
  std::memcpy(p->a_stride, merged.stride[0], sizeof p->a_stride);
  std::memcpy(p->b_stride, merged.stride[1], sizeof p->b_stride);
}

}  // namespace evn
