// See resize_lines.h.
#include "backends/cpu/move/resize_lines.h"

#include <algorithm>

namespace evn {
namespace {

// y[i] += the sum over k < K of weights[k] * x[k * step + i].
template <int K>
void add_few_lines(const float* __restrict x, std::int64_t step, const float* weights, float* __restrict y, std::int64_t n) {
  float w[K];
  for (int k = 0; k < K; ++k) w[k] = weights[k];
  const auto sum = [&](std::int64_t i) __attribute__((always_inline)) {
    float v = y[i] + w[0] * x[i];
    if constexpr (K > 1) v += w[1] * x[i + step];
    if constexpr (K > 2) v += w[2] * x[i + 2 * step] + w[3] * x[i + 3 * step];
    return v;
  };
  std::int64_t i = 0;
  for (; i + kResizeBlock <= n; i += kResizeBlock) {
    for (std::int64_t j = 0; j < kResizeBlock; ++j) y[i + j] = sum(i + j);
  }
  for (; i < n; ++i) y[i] = sum(i);
}

template <int Rows>
void resize_few_rows(const float* x, std::int64_t x_length, const ResizeTable& table, std::int64_t begin, std::int64_t end,
                     float* y, std::int64_t y_length) {
  for (std::int64_t position = begin; position < end; ++position) {
    const ResizeSpan span = table.spans[position];
    const float* const weights = table.weights_of(position);
    const float* from = x + span.first;
    float sums[Rows] = {};
    for (std::int64_t k = 0; k < span.count; ++k) {
      for (int row = 0; row < Rows; ++row) sums[row] += weights[k] * from[row * x_length + k];
    }
    for (int row = 0; row < Rows; ++row) y[row * y_length + position - begin] = sums[row];
  }
}

}  // namespace

void add_lines(const float* x, std::int64_t step, const float* weights, std::int64_t count, float* y, std::int64_t n) {
  std::fill(y, y + n, 0.0f);
  std::int64_t k = 0;
  for (; k + 4 <= count; k += 4) add_few_lines<4>(x + k * step, step, weights + k, y, n);
  for (; k + 2 <= count; k += 2) add_few_lines<2>(x + k * step, step, weights + k, y, n);
  for (; k < count; ++k) add_few_lines<1>(x + k * step, step, weights + k, y, n);
}

void resize_rows(const float* x, std::int64_t x_length, const ResizeTable& table, std::int64_t begin, std::int64_t end, float* y,
                 std::int64_t y_length, std::int64_t rows) {
  if (rows == kResizeRows) return resize_few_rows<kResizeRows>(x, x_length, table, begin, end, y, y_length);
  resize_few_rows<1>(x, x_length, table, begin, end, y, y_length);
}

}  // namespace evn
