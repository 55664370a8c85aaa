// Softmax for losses: over a line, or over columns that lie side by side.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_loss {

struct Loops {
  // The largest x[i] of n, and the sum of exp(x[i] - top).
  void (*line_sum)(const float* x, std::int64_t n, float* top, float* sum);
  // y[i] = factor * exp(x[i] - top).
  void (*line_softmax)(const float* x, float top, float factor, float* y, std::int64_t n);
  // y[i] = x[i] - top - log.
  void (*line_logs)(const float* x, float top, float log, float* y, std::int64_t n);
  // What the functions above do, for column j of `width`, whose elements are x[i * step + j].
  void (*column_sums)(const float* x, std::int64_t n, std::int64_t step, std::int64_t width, float* tops, float* sums);
  void (*column_softmax)(const float* x, const float* tops, const float* factors, float* y, std::int64_t n, std::int64_t step,
                         std::int64_t width);
  void (*column_logs)(const float* x, const float* tops, const float* logs, float* y, std::int64_t n, std::int64_t step,
                      std::int64_t width);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_loss
