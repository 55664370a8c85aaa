// Fills the L1 buffer of gemm/gemm_loops.cc with one block of B: rows [k0, k0 + kc) of `cols` columns, nr apart. Lanes beyond
// `cols` up to the next whole vector are written; the buffer has room for one vector beyond its end. Included by gemm/gemm_loops.cc
// only.
#pragma once

#include "backends/cpu/gemm/gemm_loops.h"
#include "backends/cpu/simd/copy.h"

namespace evn::EVN_ISA {
namespace {

using simd_gemm::Patches;
using simd_gemm::Tile;

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
  bool inside;              // no tap of the kernel leaves the input to the left or right
  std::int64_t iz, iy, ix;  // input position of tap (0, 0, 0)
  const float* row;         // input row of the current kz and ky; null: outside
};

int find_runs(const Patches& p, std::int64_t first, std::int64_t cols, Run* runs) {
  int n = 0;
  std::int64_t line = first / p.out_width;
  std::int64_t x = first % p.out_width;
  for (std::int64_t at = 0; at < cols; ++line) {
    const std::int64_t left = p.out_width - x;
    const std::int64_t count = left < cols - at ? left : cols - at;
    Run& r = runs[n++];
    r.at = static_cast<std::int32_t>(at);
    r.count = static_cast<std::int32_t>(count);
    r.iz = line / p.out_height * p.stride_d - p.pad_front;
    r.iy = line % p.out_height * p.stride_h - p.pad_top;
    r.ix = x * p.stride_w - p.pad_left;
    r.inside = r.ix >= 0 && r.ix + (count - 1) * p.stride_w + (p.kernel_w - 1) * p.dilation_w < p.width;
    r.row = nullptr;
    at += count;
    x = 0;
  }
  return n;
}

// n elements from input positions ix, ix + Stride, ... of a row; Stride 0: `stride` tells.
template <int Stride>
inline void copy_inside(float* to, const float* from, std::int64_t stride, std::int64_t n) {
  if (Stride == 1) {
    copy_over(to, from, n);
  } else if (Stride == 2) {
    copy_even_over(to, from, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

// Copies as copy_inside does; positions outside [0, width) are 0.
template <int Stride>
inline void copy_clipped(float* to, const float* row, std::int64_t ix, std::int64_t stride, std::int64_t width,
                         std::int64_t count) {
  const std::int64_t step = Stride == 0 ? stride : Stride;
  std::int64_t low = ix >= 0 ? 0 : (-ix + step - 1) / step;
  std::int64_t high = ix >= width ? 0 : (width - 1 - ix) / step + 1;
  if (low > count) low = count;
  if (high > count) high = count;
  if (high < low) high = low;
  if (low > 0) zero_over(to, low);
  if (high > low) copy_inside<Stride>(to + low, row + ix + low * step, step, high - low);
  if (high < count) zero_over(to + high, count - high);
}

template <int MaxRuns, int Stride>
void pack_patches_strided(float* to, const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, std::int64_t cols,
                          int nr) {
  const Patches& p = *t.patches;
  Run runs[MaxRuns];
  const int count = find_runs(p, t.first_column + column, cols, runs);
  const std::int64_t taps = p.taps();
  const float* volume = t.b + k0 / taps * p.depth * p.height * p.width;
  std::int64_t kz = k0 % taps / (p.kernel_h * p.kernel_w);
  std::int64_t ky = k0 / p.kernel_w % p.kernel_h;
  std::int64_t kx = k0 % p.kernel_w;
  bool new_row = true;
  for (std::int64_t k = 0; k < kc; ++k) {
    if (new_row) {
      for (int i = 0; i < count; ++i) {
        const std::int64_t iz = runs[i].iz + kz * p.dilation_d;
        const std::int64_t iy = runs[i].iy + ky * p.dilation_h;
        const bool outside = iz < 0 || iz >= p.depth || iy < 0 || iy >= p.height;
        runs[i].row = outside ? nullptr : volume + (iz * p.height + iy) * p.width;
      }
      new_row = false;
    }
    float* row = to + k * nr;
    const std::int64_t dx = kx * p.dilation_w;
    // In order of `at`: each copy may write beyond its end, over what the next one writes.
    for (int i = 0; i < count; ++i) {
      const Run& r = runs[i];
      if (r.row == nullptr) {
        zero_over(row + r.at, r.count);
      } else if (r.inside) {
        copy_inside<Stride>(row + r.at, r.row + r.ix + dx, p.stride_w, r.count);
      } else {
        copy_clipped<Stride>(row + r.at, r.row, r.ix + dx, p.stride_w, p.width, r.count);
      }
    }
    if (++kx == p.kernel_w) {
      kx = 0;
      new_row = true;
      if (++ky == p.kernel_h) {
        ky = 0;
        if (++kz == p.kernel_d) {
          kz = 0;
          volume += p.depth * p.height * p.width;
        }
      }
    }
  }
}

template <int MaxRuns>
void pack_patches(float* to, const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, std::int64_t cols, int nr) {
  switch (t.patches->stride_w) {
    case 1: pack_patches_strided<MaxRuns, 1>(to, t, k0, kc, column, cols, nr); break;
    case 2: pack_patches_strided<MaxRuns, 2>(to, t, k0, kc, column, cols, nr); break;
    default: pack_patches_strided<MaxRuns, 0>(to, t, k0, kc, column, cols, nr); break;
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
