// Loops over a line of a tensor that need all of it: softmax, reductions, layer normalization. Sums run in a fixed order that
// depends on the length of the line and the cluster only.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"
#include "core/epilogue.h"

namespace evn::simd_rows {

enum class Reduce : std::int32_t { kSum, kMean, kMax, kMin, kAbsSum, kSquareSum };
// What joins reductions of parts of a line; the mean's is the sum.
constexpr Reduce joining(Reduce op) { return op == Reduce::kMax || op == Reduce::kMin ? op : Reduce::kSum; }

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias over a line; without `centered`, 0 takes the place of the mean.
struct Norm {
  const float* scale;
  const float* bias;  // nullable
  float epsilon;
  bool centered;
  bool past;  // y is written past the caches
  const Epilogue* epilogue;
};

struct Loops {
  // y[i] = exp(x[i] - max) / sum exp, or the logarithm of that, in each of `rows` lines of n that follow each other. y may be x,
  // but not where it is written past the caches.
  void (*softmax)(const float* x, float* y, std::int64_t rows, std::int64_t n, bool log, bool past, const Epilogue* epilogue);
  // All n elements to one (no epilogue).
  float (*reduce)(Reduce op, const float* x, std::int64_t n);
  // y[j] = the reduction of x[i * step + j] over i < n, for j < width.
  void (*reduce_columns)(Reduce op, const float* x, float* y, std::int64_t n, std::int64_t step, std::int64_t width);
  // Lines of n that follow each other. y may be x, but not where it is written past the caches.
  void (*layer_norm)(const Norm& norm, const float* x, float* y, std::int64_t rows, std::int64_t n);
  // y[i] = exp(x[i] - top), and their sum, without an epilogue.
  float (*exponentials)(const float* x, float top, float* y, std::int64_t n);
  // y[i * step + j] = exp(x[i * step + j] - tops[j]) for i < n and j < width; sums[j] grows by their sum. y may be x.
  void (*exponential_columns)(const float* x, const float* tops, float* y, float* sums, std::int64_t n, std::int64_t step,
                              std::int64_t width);
  // The sum of (x[i] - mean)^2.
  float (*squares)(const float* x, float mean, std::int64_t n);
  // y[i] = (x[i] - mean) * inverse * scale[first + i] + bias[first + i]. y may be x.
  void (*normalize)(const Norm& norm, float mean, float inverse, std::int64_t first, const float* x, float* y, std::int64_t n);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_rows
