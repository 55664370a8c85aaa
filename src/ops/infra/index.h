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

// Where indices of one axis lead: from index i of those that are read, to base + i * lane + index * step.
struct IndexedAxis {
  std::int64_t dim, step, lane;
};

// Reads `count` elements of an int32 or int64 tensor from element `begin` on as indices of that axis, wrapped and checked as
// wrap_index does, and writes where they lead. To be called for a few elements at a time.
void read_indices(const ConstTensor& indices, std::int64_t begin, std::int64_t count, const IndexedAxis& axis, std::int64_t base,
                  std::int64_t* to);
inline constexpr std::int64_t kIndicesAtATime = 256;

// Reads `count` rows of `depth` coordinates each, of the leading axes of x, and writes to which element each leads. To be called
// for a few rows at a time.
void read_coordinates(const std::int64_t* rows, std::int64_t count, const Shape& x, int depth, std::int64_t* to);

}  // namespace evn
