// Whole numbers in kernels that compute in 64 bits: the numbers of their types in the sources, and broadcast arithmetic.
#pragma once

#include <iterator>

#include "backends/opencl/kernels/broadcast.h"

namespace evn {

// The type's number, as `load_whole` of integer.cl counts; -1: no whole number.
inline std::int32_t whole_type(DType dtype) {
  constexpr DType kTypes[] = {DType::kUint8,  DType::kInt8,  DType::kUint16, DType::kInt16,
                              DType::kUint32, DType::kInt32, DType::kUint64, DType::kInt64};
  for (std::size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] == dtype) return static_cast<std::int32_t>(i);
  }
  return -1;
}

inline Refusal refuse_unless_whole(const OpDesc& desc) { return whole_type(desc.inputs[0].dtype) < 0 ? "only integers" : nullptr; }

// The struct that integer.cl takes, laid out as there.
struct Whole {
  std::int32_t op, type, rank, padding;
  std::int64_t inner, rows, row_chunk, chunk;
  std::int32_t a_step, b_step;
  std::int64_t dim[kMaxRank], a_stride[kMaxRank], b_stride[kMaxRank];
};

}  // namespace evn
