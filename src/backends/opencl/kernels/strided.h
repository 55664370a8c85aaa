// Strided copies, what most operators that only move elements come down to, for elements of any width.
#pragma once

#include "backends/opencl/kernels/support.h"

namespace evn {

// The struct of strided.cl: the element at x_start + sum of position * x_stride goes to y_start + sum of position * y_stride, in
// elements. The innermost axis has x_step, and 1 in y.
struct DeviceCopy {
  std::int64_t rank;  // outer axes
  std::int64_t inner, rows, chunk, row_chunk;
  std::int64_t x_start, y_start, x_step;
  std::int64_t dim[kMaxRank], x_stride[kMaxRank], y_stride[kMaxRank];
};

// Merges the axes of a copy over `dims`.
DeviceCopy make_device_copy(const Shape& dims, const std::int64_t* x_strides, const std::int64_t* y_strides);

// Enqueues it. The epilogue is applied to elements of float32 and must be empty for others.
void run_device_copy(Launcher& cl, DeviceCopy copy, std::size_t element, const Buffer& x, const Buffer& y,
                     const Epilogue& epilogue);

// A refusal unless the dtype is stored, and the epilogue has something to work on.
Refusal refuse_unless_movable(const OpDesc& desc);

}  // namespace evn
