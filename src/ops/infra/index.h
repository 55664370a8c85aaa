// Indices that a model or a caller gives: negative ones count from the end.
#pragma once

#include "ops/op.h"

namespace evn {

// Throws EVN_ERROR_INVALID_ARGUMENT outside [-dim, dim).
inline std::int64_t wrap_index(std::int64_t index, std::int64_t dim) {
  if (index < -dim || index >= dim) {
    fail(EVN_ERROR_INVALID_ARGUMENT, "index %lld is outside [-%lld, %lld)", static_cast<long long>(index),
         static_cast<long long>(dim), static_cast<long long>(dim));
  }
  return index < 0 ? index + dim : index;
}

// Element i of an int32 or int64 tensor.
inline std::int64_t int_at(const ConstTensor& t, std::int64_t i) {
  return t.desc.dtype == DType::kInt64 ? t.as<std::int64_t>()[i] : t.as<std::int32_t>()[i];
}

inline std::int64_t index_at(const ConstTensor& indices, std::int64_t i, std::int64_t dim) {
  return wrap_index(int_at(indices, i), dim);
}

}  // namespace evn
