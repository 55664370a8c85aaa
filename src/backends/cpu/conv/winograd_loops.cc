// The transforms of conv/winograd_loops.h for one cluster. Vectors run over channels.
#include "backends/cpu/conv/winograd_loops.h"

#include "backends/cpu/simd/finish.h"

namespace evn::EVN_ISA {
namespace {

using simd_winograd::Finish;
using simd_winograd::Geometry;
using simd_winograd::kHalfRoot;
using simd_winograd::kRoot;
using simd_winograd::patch_of;

// B^T d for one line of six, or of four.
inline void pixel_line(const Vec (&d)[6], Vec (&t)[6]) {
  const Vec even_a = fma(splat(-2.0f), d[2], d[4]);
  const Vec odd_a = fma(splat(kHalfRoot), d[3], splat(-kRoot) * d[1]);
  const Vec even_b = fma(splat(-0.5f), d[2], d[4]);
  const Vec odd_b = fma(splat(kRoot), d[3], splat(-kHalfRoot) * d[1]);
  t[0] = fma(splat(-2.5f), d[2], d[0] + d[4]);
  t[1] = even_a + odd_a;
  t[2] = even_a - odd_a;
  t[3] = even_b + odd_b;
  t[4] = even_b - odd_b;
  t[5] = fma(splat(-2.5f), d[3], d[1] + d[5]);
}

inline void pixel_line(const Vec (&d)[4], Vec (&t)[4]) {
  t[0] = d[0] - d[2];
  t[1] = d[1] + d[2];
  t[2] = d[2] - d[1];
  t[3] = d[1] - d[3];
}

// A^T m for one line of six, or of four.
inline void packed_gemm_line(const Vec (&m)[6], Vec (&y)[4]) {
  const Vec even_a = m[1] + m[2];
  const Vec odd_a = m[1] - m[2];
  const Vec even_b = m[3] + m[4];
  const Vec odd_b = m[3] - m[4];
  y[0] = m[0] + even_a + even_b;
  y[1] = fma(splat(kRoot), odd_b, splat(kHalfRoot) * odd_a);
  y[2] = fma(splat(2.0f), even_b, splat(0.5f) * even_a);
  y[3] = fma(splat(2.0f * kRoot), odd_b, fma(splat(0.5f * kHalfRoot), odd_a, m[5]));
}

inline void packed_gemm_line(const Vec (&m)[4], Vec (&y)[2]) {
  y[0] = m[0] + m[1] + m[2];
  y[1] = m[1] - m[2] - m[3];
}

// G g for one line of three.
inline void filter_line(const Vec (&g)[3], Vec (&u)[6]) {
  const Vec even_a = fma(splat(0.5f), g[2], g[0]) * splat(-1.0f / 1.5f);
  const Vec odd_a = splat(-kHalfRoot / 1.5f) * g[1];
  const Vec even_b = fma(splat(2.0f), g[2], g[0]) * splat(1.0f / 6);
  const Vec odd_b = splat(kRoot / 6) * g[1];
  u[0] = g[0];
  u[1] = even_a + odd_a;
  u[2] = even_a - odd_a;
  u[3] = even_b + odd_b;
  u[4] = even_b - odd_b;
  u[5] = g[2];
}

inline void filter_line(const Vec (&g)[3], Vec (&u)[4]) {
  const Vec even = splat(0.5f) * (g[0] + g[2]);
  const Vec odd = splat(0.5f) * g[1];
  u[0] = g[0];
  u[1] = even + odd;
  u[2] = even - odd;
  u[3] = g[2];
}

constexpr std::int64_t kFarFloats =
    1 << 20;  // pixels of so many come from beyond L2 and are fetched a tile ahead: lines of many places at once

struct TilePlace {
  std::int64_t image, y, x;  // of its first output
};

template <int T>
TilePlace place_of(const Geometry& g, std::int64_t tile) {
  const std::int64_t line = tile / g.tiles_x;
  return {line / g.tiles_y, line % g.tiles_y * T, tile % g.tiles_x * T};
}

// n: lanes, kLanes or fewer.
template <int T, bool Inside>
inline void pixel_tile(const float* x, std::int64_t pixel, std::int64_t line, int y0, int y1, int x0, int x1, std::int64_t n,
                       float* v, std::int64_t step) {
  constexpr int kPatch = patch_of(T);
  Vec t[kPatch][kPatch];
#pragma GCC unroll 6
  for (int j = 0; j < kPatch; ++j) {
    Vec d[kPatch];
#pragma GCC unroll 6
    for (int i = 0; i < kPatch; ++i) {
      if (Inside) {
        d[i] = load(x + i * line + j * pixel);
      } else {
        const bool there = i >= y0 && i < y1 && j >= x0 && j < x1;
        d[i] = there ? load_n(x + i * line + j * pixel, n) : zero();
      }
    }
    Vec u[kPatch];
    pixel_line(d, u);
#pragma GCC unroll 6
    for (int i = 0; i < kPatch; ++i) t[i][j] = u[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kPatch; ++i) {
    Vec u[kPatch];
    pixel_line(t[i], u);
#pragma GCC unroll 6
    for (int j = 0; j < kPatch; ++j) {
      float* const to = v + (i * kPatch + j) * step;
      if (Inside) {
        store(to, u[j]);
      } else {
        store_n(to, u[j], n);
      }
    }
  }
}

// How much of [0, length) a patch that begins at `from` sees: [low, high) of its lines.
template <int T>
inline void clip(std::int64_t from, std::int64_t length, int* low, int* high) {
  constexpr int kPatch = patch_of(T);
  const std::int64_t left = length - from;
  *low = from < 0 ? static_cast<int>(from < -kPatch ? kPatch : -from) : 0;
  *high = left < 0 ? 0 : left < kPatch ? static_cast<int>(left) : kPatch;
}

template <int T>
void pixels(const Geometry& g, const float* x, std::int64_t first, std::int64_t count, float* v, std::int64_t step) {
  const std::int64_t line = g.width * g.pixel;
  const bool far = g.height * line > kFarFloats;
  for (std::int64_t i = 0; i < count; ++i) {
    const TilePlace p = place_of<T>(g, first + i);
    const std::int64_t y = p.y - g.pad_top;
    const std::int64_t column = p.x - g.pad_left;
    const float* const from = x + ((p.image * g.height + y) * g.width + column) * g.pixel;
    float* const to = v + i * g.channels;
    int y0, y1, x0, x1;
    clip<T>(y, g.height, &y0, &y1);
    clip<T>(column, g.width, &x0, &x1);
    const bool inside = y0 == 0 && x0 == 0 && y1 == patch_of(T) && x1 == patch_of(T);
    std::int64_t c = 0;
    for (; inside && c + kLanes <= g.channels; c += kLanes) {
      // The columns of the next tile that this one does not see.
      for (int j = patch_of(T); far && j < patch_of(T) + T; ++j) {
        for (int k = 0; k < patch_of(T); ++k) __builtin_prefetch(from + c + k * line + j * g.pixel, 0, 3);
      }
      pixel_tile<T, true>(from + c, g.pixel, line, 0, 0, 0, 0, kLanes, to + c, step);
    }
    for (; c < g.channels; c += kLanes) {
      const std::int64_t n = g.channels - c < kLanes ? g.channels - c : kLanes;
      pixel_tile<T, false>(from + c, g.pixel, line, y0, y1, x0, x1, n, to + c, step);
    }
  }
}

template <int T>
void filters(const float* w, std::int64_t channels, std::int64_t width, float* u, std::int64_t step) {
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t column = 0; column < width; column += kLanes) {
      const float* const taps = w + c * 9 * width + column;
      constexpr int kPatch = patch_of(T);
      Vec t[kPatch][3];
      for (int j = 0; j < 3; ++j) {
        const Vec g[3] = {load(taps + j * width), load(taps + (3 + j) * width), load(taps + (6 + j) * width)};
        Vec r[kPatch];
        filter_line(g, r);
        for (int i = 0; i < kPatch; ++i) t[i][j] = r[i];
      }
      for (int i = 0; i < kPatch; ++i) {
        Vec r[kPatch];
        filter_line(t[i], r);
        for (int j = 0; j < kPatch; ++j) store(u + (i * kPatch + j) * step + c * width + column, r[j]);
      }
    }
  }
}

// Floats from one pixel, and from one line, to the next.
struct Steps {
  std::int64_t pixel, line;
};

// One vector of channels of one tile; rows x columns of it are in the image.
template <int T>
inline void packed_gemm_tile(const float* m, std::int64_t step, const Chain& chain, Vec bias, const float* residual,
                             const Steps& residual_steps, float* y, const Steps& steps, int rows, int columns, std::int64_t n) {
  constexpr int kPatch = patch_of(T);
  Vec t[T][kPatch];
#pragma GCC unroll 6
  for (int j = 0; j < kPatch; ++j) {
    Vec d[kPatch];
#pragma GCC unroll 6
    for (int i = 0; i < kPatch; ++i)
      d[i] = n == kLanes ? load(m + (i * kPatch + j) * step) : load_n(m + (i * kPatch + j) * step, n);
    Vec r[T];
    packed_gemm_line(d, r);
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) t[i][j] = r[i];
  }
#pragma GCC unroll 4
  for (int i = 0; i < T; ++i) {
    if (i >= rows) break;
    Vec r[T];
    packed_gemm_line(t[i], r);
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j) {
      r[j] = r[j] + bias;
      if (residual != nullptr && j < columns)
        r[j] = r[j] + load_some(residual + i * residual_steps.line + j * residual_steps.pixel, n);
    }
    finish(chain, r);
#pragma GCC unroll 4
    for (int j = 0; j < T; ++j) {
      if (j < columns) store_some(y + i * steps.line + j * steps.pixel, r[j], n);
    }
  }
}

template <int T>
void products(const Geometry& g, const float* m, std::int64_t step, std::int64_t first, std::int64_t count, const Finish& f) {
  const Chain chain = split_chain(f.epilogue);
  const Steps steps = {g.out_pixel, g.out_width * g.out_pixel};
  const Steps residual_steps = {g.residual_pixel, g.out_width * g.residual_pixel};
  for (std::int64_t i = 0; i < count; ++i) {
    const TilePlace p = place_of<T>(g, first + i);
    const std::int64_t pixel = (p.image * g.out_height + p.y) * g.out_width + p.x;
    float* const y = f.y + pixel * g.out_pixel + f.first;
    const float* const residual = f.residual == nullptr ? nullptr : f.residual + pixel * g.residual_pixel + f.first;
    const int rows = static_cast<int>(g.out_height - p.y < T ? g.out_height - p.y : T);
    const int columns = static_cast<int>(g.out_width - p.x < T ? g.out_width - p.x : T);
    for (std::int64_t c = 0; c < f.count; c += kLanes) {
      const std::int64_t n = f.count - c < kLanes ? f.count - c : kLanes;
      const Vec bias = f.bias == nullptr ? zero() : load_n(f.bias + f.first + c, n);
      packed_gemm_tile<T>(m + i * f.count + c, step, chain, bias, residual == nullptr ? nullptr : residual + c, residual_steps,
                          y + c, steps, rows, columns, n);
    }
  }
}

}  // namespace

extern const simd_winograd::Loops loops_winograd;
const simd_winograd::Loops loops_winograd = {{pixels<4>, filters<4>, products<4>}, {pixels<2>, filters<2>, products<2>}};

}  // namespace evn::EVN_ISA
