// Sums and combinations for the derivatives of normalizations, over lines and over columns that lie side by side.
#pragma once

#include <cstdint>

#include "backends/cpu/isa.h"

namespace evn::simd_norm_gradient {

// One channel, or line: dx = a * (dy * scale - c) + b * (x - mean).
struct Combination {
  float mean, a, b, c;
};

struct Loops {
  // The sums over a line: that of dy * scale, and that of dy * scale * (x - mean). Without a scale it is 1.
  void (*products)(const float* x, const float* dy, const float* scale, float mean, std::int64_t n, float* sums);
  void (*combine)(const float* x, const float* dy, const float* scale, const Combination& of, float* dx, std::int64_t n);
  // dscale[i] += dy[i] * (x[i] - mean) * inverse, dbias[i] += dy[i].
  void (*accumulate)(const float* x, const float* dy, float mean, float inverse, float* dscale, float* dbias, std::int64_t n);
  // The sums over each column j < width, whose elements are x[i * step + j]: the sum of dy, or of x without a dy, and that of dy *
  // (x - means[j]), or of (x - means[j])^2.
  void (*column_products)(const float* x, const float* dy, const float* means, std::int64_t n, std::int64_t step,
                          std::int64_t width, float* sums, float* products);
  // As combine, for columns and without a scale.
  void (*combine_columns)(const float* x, const float* dy, const Combination* of, float* dx, std::int64_t n, std::int64_t step,
                          std::int64_t width);
};
const Loops& loops(Isa isa);

}  // namespace evn::simd_norm_gradient
