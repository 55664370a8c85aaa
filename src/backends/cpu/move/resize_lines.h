// The sums that resize_axes_kernels.cc makes along one axis.
#pragma once

#include <cstdint>

namespace evn {

// The elements of one position: `count` from `first` on.
struct ResizeSpan {
  std::int64_t first, count;
};

// What each position of an axis is made of; `most` weights lie there for each.
struct ResizeTable {
  ResizeSpan* spans;
  float* weights;
  std::int64_t most;
  const float* weights_of(std::int64_t position) const { return weights + position * most; }
};

inline constexpr std::int64_t kResizeBlock = 16;  // floats of a line for which loops are unrolled
inline constexpr std::int64_t kResizeRows = 4;    // lines that are resized together along the last axis

// y[i] = the sum over k < count of weights[k] * x[k * step + i].
void add_lines(const float* x, std::int64_t step, const float* weights, std::int64_t count, float* y, std::int64_t n);

// Positions [begin, end) along the last axis of one line, or of kResizeRows lines.
void resize_rows(const float* x, std::int64_t x_length, const ResizeTable& table, std::int64_t begin, std::int64_t end, float* y,
                 std::int64_t y_length, std::int64_t rows);

}  // namespace evn
