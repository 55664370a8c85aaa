#include "backends/cpu/conv_gradient/winograd_gradient_loops.h"

#include "backends/cpu/conv/winograd_loops.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_winograd::kHalfRoot;
using simd_winograd::kRoot;
using simd_winograd_gradient::Gradients;

constexpr int kTile = 4, kPatch = 6;

// A y for one line of four.
inline void gradient_line(const Vec (&y)[kTile], Vec (&z)[kPatch]) {
  const Vec even_a = fma(splat(0.5f), y[2], y[0]);
  const Vec odd_a = fma(splat(0.5f * kHalfRoot), y[3], splat(kHalfRoot) * y[1]);
  const Vec even_b = fma(splat(2.0f), y[2], y[0]);
  const Vec odd_b = fma(splat(2.0f * kRoot), y[3], splat(kRoot) * y[1]);
  z[0] = y[0];
  z[1] = even_a + odd_a;
  z[2] = even_a - odd_a;
  z[3] = even_b + odd_b;
  z[4] = even_b - odd_b;
  z[5] = y[3];
}

// G^T u for one line of six.
inline void filter_line(const Vec (&u)[kPatch], Vec (&g)[3]) {
  const Vec even_a = u[1] + u[2];
  const Vec odd_a = u[1] - u[2];
  const Vec even_b = u[3] + u[4];
  const Vec odd_b = u[3] - u[4];
  g[0] = fma(splat(-1.0f / 1.5f), even_a, fma(splat(1.0f / 6), even_b, u[0]));
  g[1] = fma(splat(kRoot / 6), odd_b, splat(-kHalfRoot / 1.5f) * odd_a);
  g[2] = fma(splat(-0.5f / 1.5f), even_a, fma(splat(2.0f / 6), even_b, u[5]));
}

// n: lanes. Rows and columns of the tile beyond `rows` and `columns` are 0.
inline void gradient_tile(const float* dy, std::int64_t line, std::int64_t pixel, int rows, int columns, std::int64_t n, float* z,
                          std::int64_t step) {
  Vec t[kPatch][kTile];
#pragma GCC unroll 4
  for (int j = 0; j < kTile; ++j) {
    Vec d[kTile];
#pragma GCC unroll 4
    for (int i = 0; i < kTile; ++i) {
      d[i] = i >= rows || j >= columns ? zero()
             : n == kLanes             ? load(dy + i * line + j * pixel)
                                       : load_n(dy + i * line + j * pixel, n);
    }
    Vec r[kPatch];
    gradient_line(d, r);
#pragma GCC unroll 6
    for (int i = 0; i < kPatch; ++i) t[i][j] = r[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kPatch; ++i) {
    Vec r[kPatch];
    gradient_line(t[i], r);
#pragma GCC unroll 6
    for (int j = 0; j < kPatch; ++j) store(z + (i * kPatch + j) * step, r[j]);
  }
}

void gradients(const Gradients& g, std::int64_t first, std::int64_t count, float* z, std::int64_t step, std::int64_t row) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tile = first + i, line = tile / g.tiles_x, x = tile % g.tiles_x * kTile;
    const std::int64_t image = line / g.tiles_y, y = line % g.tiles_y * kTile;
    const float* const from = g.dy + ((image * g.height + y) * g.width + x) * g.pixel;
    const int rows = static_cast<int>(g.height - y < kTile ? g.height - y : kTile);
    const int columns = static_cast<int>(g.width - x < kTile ? g.width - x : kTile);
    for (std::int64_t c = 0; c < g.channels; c += kLanes) {
      const std::int64_t n = g.channels - c < kLanes ? g.channels - c : kLanes;
      gradient_tile(from + c, g.width * g.pixel, g.pixel, rows, columns, n, z + i * row + c, step);
    }
  }
}

void filters(const float* u, std::int64_t step, std::int64_t rows, std::int64_t width, bool add, float* w) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t column = 0; column < width; column += kLanes) {
      const float* const from = u + r * width + column;
      Vec t[3][kPatch];
#pragma GCC unroll 6
      for (int j = 0; j < kPatch; ++j) {
        Vec d[kPatch];
#pragma GCC unroll 6
        for (int i = 0; i < kPatch; ++i) d[i] = load(from + (i * kPatch + j) * step);
        Vec g[3];
        filter_line(d, g);
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i) t[i][j] = g[i];
      }
      float* const to = w + r * 9 * width + column;
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        Vec g[3];
        filter_line(t[i], g);
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) {
          float* const at = to + (i * 3 + j) * width;
          store(at, add ? g[j] + load(at) : g[j]);
        }
      }
    }
  }
}

}  // namespace

extern const simd_winograd_gradient::Loops loops_winograd_gradient;
const simd_winograd_gradient::Loops loops_winograd_gradient = {.gradients = gradients, .filters = filters};

}  // namespace evn::EVN_ISA
