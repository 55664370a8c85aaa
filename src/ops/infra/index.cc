#include "ops/infra/index.h"

namespace evn {
namespace {

template <typename T>
void read(const T* indices, std::int64_t count, const IndexedAxis axis, std::int64_t base, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i, base += axis.lane) {
    std::int64_t index = indices[i];
    if (static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(axis.dim)) [[unlikely]]
      index = wrap_index(index, axis.dim);
    to[i] = base + index * axis.step;
  }
}

}  // namespace

void read_indices(const ConstTensor& indices, std::int64_t begin, std::int64_t count, const IndexedAxis& axis, std::int64_t base,
                  std::int64_t* to) {
  if (indices.desc.dtype == DType::kInt64) return read(indices.as<std::int64_t>() + begin, count, axis, base, to);
  read(indices.as<std::int32_t>() + begin, count, axis, base, to);
}

void read_coordinates(const std::int64_t* rows, std::int64_t count, const Shape& x, int depth, std::int64_t* to) {
  std::int64_t dims[kMaxRank], steps[kMaxRank];
  row_major_strides(x, steps);
  for (int k = 0; k < depth; ++k) dims[k] = x[k];
  for (std::int64_t i = 0; i < count; ++i, rows += depth) {
    std::int64_t at = 0;
    for (int k = 0; k < depth; ++k) {
      std::int64_t index = rows[k];
      if (static_cast<std::uint64_t>(index) >= static_cast<std::uint64_t>(dims[k])) [[unlikely]]
        index = wrap_index(index, dims[k]);
      at += index * steps[k];
    }
    to[i] = at;
  }
}

}  // namespace evn
