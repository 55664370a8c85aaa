// N-d iteration: walks a shape in row-major order with running offsets into differently laid out tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "ops/op.h"

namespace evn {

// Per axis of the walked shape, how far an offset moves, in elements.
struct Strides {
  std::int64_t step[kMaxRank] = {};
};

// Strides that read `from` as if it were broadcast to `to`.
inline Strides broadcast_strides(const Shape& from, const Shape& to) {
  std::int64_t dense[kMaxRank] = {};
  row_major_strides(from, dense);
  Strides s;
  const int missing = to.rank() - from.rank();
  for (int i = 0; i < from.rank(); ++i) s.step[i + missing] = from[i] == 1 ? 0 : dense[i];
  return s;
}

inline Strides dense_strides(const Shape& shape) {
  Strides s;
  row_major_strides(shape, s.step);
  return s;
}

// The axes of a walk, innermost first: those over which all offsets go on as within one are one.
template <int N>
struct WalkAxes {
  int rank = 0;
  std::int64_t dims[kMaxRank] = {};
  std::int64_t steps[kMaxRank][N] = {};

  WalkAxes() = default;
  WalkAxes(const Shape& shape, const Strides (&strides)[N]) {
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (shape[axis] == 1) continue;
      bool goes_on = rank > 0;
      for (int n = 0; n < N && goes_on; ++n) goes_on = strides[n].step[axis] == steps[rank - 1][n] * dims[rank - 1];
      if (goes_on) {
        dims[rank - 1] *= shape[axis];
        continue;
      }
      for (int n = 0; n < N; ++n) steps[rank][n] = strides[n].step[axis];
      dims[rank++] = shape[axis];
    }
    if (rank == 0) dims[rank++] = 1;
  }

  // How often the innermost axis is walked.
  std::int64_t lines() const {
    std::int64_t n = 1;
    for (int axis = 1; axis < rank; ++axis) n *= dims[axis];
    return dims[0] == 0 ? 0 : n;
  }
};

// Calls f(position, offsets) for lines [begin, end) of `axes`: for the first element of each. Element i of a line has the position
// position + i and the offsets offsets[n] + i * axes.steps[0][n].
template <int N, typename F>
void walk_lines(const WalkAxes<N>& axes, F&& f, const std::int64_t* start = nullptr, std::int64_t begin = 0,
                std::int64_t end = INT64_MAX) {
  end = std::min(end, axes.lines());
  std::int64_t at[kMaxRank] = {};
  std::int64_t base[N] = {};
  for (int n = 0; n < N && start != nullptr; ++n) base[n] = start[n];
  std::int64_t rest = begin;
  for (int axis = 1; axis < axes.rank && rest > 0; ++axis) {
    at[axis] = rest % axes.dims[axis];
    rest /= axes.dims[axis];
    for (int n = 0; n < N; ++n) base[n] += axes.steps[axis][n] * at[axis];
  }
  for (std::int64_t line = begin; line < end; ++line) {
    f(line * axes.dims[0], static_cast<const std::int64_t*>(base));
    for (int axis = 1; axis < axes.rank; ++axis) {
      for (int n = 0; n < N; ++n) base[n] += axes.steps[axis][n];
      if (++at[axis] < axes.dims[axis]) break;
      for (int n = 0; n < N; ++n) base[n] -= axes.steps[axis][n] * axes.dims[axis];
      at[axis] = 0;
    }
  }
}

// Calls f(position, offsets) for each element: `position` counts from 0, offsets[n] follows strides[n] from start[n] (null: 0). The
// innermost loop is plain.
template <int N, typename F>
void walk(const Shape& shape, const Strides (&strides)[N], F&& f, const std::int64_t* start = nullptr) {
  const std::int64_t total = shape.elements();
  if (total == 0) return;
  const WalkAxes<N> axes(shape, strides);
  std::int64_t at[kMaxRank] = {};
  std::int64_t base[N] = {};
  for (int n = 0; n < N && start != nullptr; ++n) base[n] = start[n];
  for (std::int64_t position = 0; position < total; position += axes.dims[0]) {
    in_pieces(axes.dims[0], 1, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t offsets[N];
      for (std::int64_t i = begin; i < end; ++i) {
        for (int n = 0; n < N; ++n) offsets[n] = base[n] + i * axes.steps[0][n];
        f(position + i, static_cast<const std::int64_t*>(offsets));
      }
    });
    for (int axis = 1; axis < axes.rank; ++axis) {
      for (int n = 0; n < N; ++n) base[n] += axes.steps[axis][n];
      if (++at[axis] < axes.dims[axis]) break;
      for (int n = 0; n < N; ++n) base[n] -= axes.steps[axis][n] * axes.dims[axis];
      at[axis] = 0;
    }
  }
}

// Calls f(integral_constant<size_t, bytes>) for the size of an element, so that copies of elements have a constant size.
template <typename F>
void with_width(DType dtype, F&& f) {
  switch (dtype_size(dtype)) {
    case 1: return f(std::integral_constant<std::size_t, 1>{});
    case 2: return f(std::integral_constant<std::size_t, 2>{});
    case 4: return f(std::integral_constant<std::size_t, 4>{});
    case 8: return f(std::integral_constant<std::size_t, 8>{});
    case 16: return f(std::integral_constant<std::size_t, 16>{});
    default: fail(EVN_ERROR_UNSUPPORTED, "elements of %s cannot be moved", dtype_name(dtype));
  }
}

// Copies element src[from] to dst[to]; W bytes each.
template <std::size_t W>
void move_element(void* dst, std::int64_t to, const void* src, std::int64_t from) {
  std::memcpy(static_cast<char*>(dst) + to * static_cast<std::int64_t>(W),
              static_cast<const char*>(src) + from * static_cast<std::int64_t>(W), W);
}

// dst[i] = src[start + sum over axes of at[axis] * strides[axis]], over the positions of `shape`: broadcasts, slices, transposes.
inline void gather_strided(const Shape& shape, DType dtype, void* dst, const void* src, const Strides& strides,
                           std::int64_t start = 0) {
  with_width(dtype, [&](auto width) {
    const auto move = [&](std::int64_t i, const std::int64_t* from) { move_element<width()>(dst, i, src, from[0]); };
    walk<1>(shape, {strides}, move, &start);
  });
}

// All bytes of a tensor to one of the same size, which may be the same memory.
inline void copy_all(const ConstTensor& from, const MutableTensor& to) {
  const std::size_t size = from.desc.size_bytes();
  if (size != 0 && from.data != to.data) move_in_pieces(to.data, from.data, size);
}

}  // namespace evn
