// Fills the L1 buffer of simd/gemm.cc with one block of B: rows [k0, k0 + kc) of `cols` columns, nr apart. Lanes beyond `cols` up to
// the next whole vector are written; the buffer has room for one vector beyond its end. Included by simd/gemm.cc only.
#pragma once

#include "backends/cpu/simd/gemm.h"
#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

using simd_gemm::Patches;
using simd_gemm::Tile;

// Copies n floats; may write up to a whole vector beyond, reads exactly n.
inline void copy_over(float* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  if (i < n) store(to + i, load_n(from + i, n - i));
}
inline void zero_over(float* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) store(to + i, zero());
}

void pack_rows(float* to, const float* b, std::int64_t ldb, std::int64_t kc, std::int64_t cols, int nr) {
  for (std::int64_t k = 0; k < kc; ++k) copy_over(to + k * nr, b + k * ldb, cols);
}

void pack_columns(float* to, const float* b, std::int64_t ldb, std::int64_t kc, std::int64_t cols, int nr) {
  for (std::int64_t j = 0; j < cols; ++j) {
    const float* from = b + j * ldb;
    for (std::int64_t k = 0; k < kc; ++k) to[k * nr + j] = from[k];
  }
  const std::int64_t whole = (cols + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t j = cols; j < whole; ++j) {
    for (std::int64_t k = 0; k < kc; ++k) to[k * nr + j] = 0;
  }
}

// Consecutive output positions of one row inside a micro-panel.
struct Run {
  std::int32_t at, count;
  std::int64_t y, x;
};

int find_runs(const Patches& p, std::int64_t first, std::int64_t cols, Run* runs) {
  int n = 0;
  std::int64_t y = first / p.out_width;
  std::int64_t x = first % p.out_width;
  for (std::int64_t at = 0; at < cols;) {
    const std::int64_t left = p.out_width - x;
    const std::int64_t count = left < cols - at ? left : cols - at;
    runs[n++] = {static_cast<std::int32_t>(at), static_cast<std::int32_t>(count), y, x};
    at += count;
    x = 0;
    ++y;
  }
  return n;
}

inline void copy_stride2(float* to, const float* from, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (; i + kLanes < n; i += kLanes) {
    store(to + i, _mm512_permutex2var_ps(load(from + 2 * i), even, load(from + 2 * i + kLanes)));
  }
  if (i < n) {
    const std::int64_t floats = 2 * (n - i) - 1;
    const Vec a = load_n(from + 2 * i, floats < kLanes ? floats : kLanes);
    const Vec b = floats > kLanes ? load_n(from + 2 * i + kLanes, floats - kLanes) : zero();
    store(to + i, _mm512_permutex2var_ps(a, even, b));
  }
#elif defined(__AVX2__)
  const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
  for (; i + kLanes < n; i += kLanes) {
    const __m256 mixed = _mm256_shuffle_ps(load(from + 2 * i), load(from + 2 * i + kLanes), 0x88);
    store(to + i, _mm256_permutevar8x32_ps(mixed, order));
  }
  for (; i < n; ++i) to[i] = from[2 * i];
#else
  for (; i < n; ++i) to[i] = from[2 * i];
#endif
}

// One run of one row of B: input positions ix, ix + stride, ...; those outside [0, width) are 0.
inline void copy_run(float* to, const float* row, std::int64_t ix, std::int64_t stride, std::int64_t width, std::int64_t count) {
  std::int64_t low = ix >= 0 ? 0 : (-ix + stride - 1) / stride;
  std::int64_t high = ix >= width ? 0 : (width - 1 - ix) / stride + 1;
  if (low > count) low = count;
  if (high > count) high = count;
  if (high < low) high = low;
  if (low > 0) zero_over(to, low);
  const float* from = row + ix + low * stride;
  if (stride == 1) {
    copy_over(to + low, from, high - low);
  } else if (stride == 2) {
    copy_stride2(to + low, from, high - low);
  } else {
    for (std::int64_t i = low; i < high; ++i) to[i] = from[(i - low) * stride];
  }
  if (high < count) zero_over(to + high, count - high);
}

template <int MaxRuns>
void pack_patches(float* to, const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, std::int64_t cols, int nr) {
  const Patches& p = *t.patches;
  Run runs[MaxRuns];
  const int count = find_runs(p, t.first_column + column, cols, runs);
  const std::int64_t taps = p.kernel_h * p.kernel_w;
  std::int64_t c = k0 / taps;
  std::int64_t ky = k0 % taps / p.kernel_w;
  std::int64_t kx = k0 % p.kernel_w;
  for (std::int64_t k = 0; k < kc; ++k) {
    const float* plane = t.b + c * p.height * p.width;
    float* row = to + k * nr;
    for (int i = 0; i < count; ++i) {
      const Run& r = runs[i];
      const std::int64_t iy = r.y * p.stride_h - p.pad_top + ky * p.dilation_h;
      if (iy < 0 || iy >= p.height) {
        zero_over(row + r.at, r.count);
      } else {
        copy_run(row + r.at, plane + iy * p.width, r.x * p.stride_w - p.pad_left + kx * p.dilation_w, p.stride_w, p.width, r.count);
      }
    }
    if (++kx == p.kernel_w) {
      kx = 0;
      if (++ky == p.kernel_h) {
        ky = 0;
        ++c;
      }
    }
  }
}

// As pack_patches, of a transposed convolution. Strided in the output, so element by element.
template <int MaxRuns>
void pack_up_patches(float* to, const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, std::int64_t cols, int nr) {
  const Patches& p = *t.patches;
  Run runs[MaxRuns];
  const int count = find_runs(p, t.first_column + column, cols, runs);
  const std::int64_t taps = p.kernel_h * p.kernel_w;
  for (std::int64_t k = 0; k < kc; ++k) {
    const float* plane = t.b + (k0 + k) / taps * p.height * p.width;
    const std::int64_t ky = (k0 + k) % taps / p.kernel_w;
    const std::int64_t kx = (k0 + k) % p.kernel_w;
    float* row = to + k * nr;
    for (int i = 0; i < count; ++i) {
      const Run& r = runs[i];
      zero_over(row + r.at, r.count);
      const std::int64_t y = r.y + p.pad_top - ky * p.dilation_h;
      if (y < 0 || y % p.stride_h != 0 || y / p.stride_h >= p.height) continue;
      const float* from = plane + y / p.stride_h * p.width;
      const std::int64_t x0 = r.x + p.pad_left - kx * p.dilation_w;
      std::int64_t j = x0 >= 0 ? (p.stride_w - x0 % p.stride_w) % p.stride_w : -x0;
      for (; j < r.count && (x0 + j) / p.stride_w < p.width; j += p.stride_w) row[r.at + j] = from[(x0 + j) / p.stride_w];
    }
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
