// The transforms of qconv/qwinograd.h for a cluster without vpdpbusd. Included by qgemm/qgemm_tile.h only. They take little of the
// time: loops over lines are not unrolled, for the sake of size.
#pragma once

#include "backends/cpu/qconv/qwinograd.h"
#include "backends/cpu/qgemm/qgemm_int16.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kPatch = simd_qgemm::kWinogradPatch;
// B^T d.
inline void pixel_line(const ShortBits (&d)[kPatch], ShortBits (&t)[kPatch]) {
  const ShortBits far = d[4] - d[2], near = (d[3] - d[1]) << 1;
  t[0] = far + ((d[0] - d[2]) << 2);
  t[1] = d[3] + d[4] - ((d[1] + d[2]) << 2);
  t[2] = d[4] - d[3] + ((d[1] - d[2]) << 2);
  t[3] = far + near;
  t[4] = far - near;
  t[5] = d[5] - d[3] + ((d[1] - d[3]) << 2);
}

void winograd_pixels(const simd_qgemm::WinogradImage& g, std::int64_t first, std::int64_t count, std::int64_t lda, std::int16_t* v,
                     std::int64_t step) {
  const std::uint8_t change = g.flip ? 0x80 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tile_line = (first + i) / g.tiles_x;
    const std::int64_t y = tile_line % g.tiles_y * simd_qgemm::kWinogradTile - g.pad_top;
    const std::int64_t x = (first + i) % g.tiles_x * simd_qgemm::kWinogradTile - g.pad_left;
    const std::int64_t image = tile_line / g.tiles_y * g.height;
    for (std::int64_t c = 0; c < g.channels; c += kShorts) {
      ShortBits t[kPatch][kPatch];
#pragma GCC unroll 1
      for (int j = 0; j < kPatch; ++j) {
        ShortBits d[kPatch], u[kPatch];
#pragma GCC unroll 1
        for (int k = 0; k < kPatch; ++k) {
          const bool inside = y + k >= 0 && y + k < g.height && x + j >= 0 && x + j < g.width;
          if (!inside) {
            d[k] = ShortBits{} + g.pad;
            continue;
          }
          const std::uint8_t* const from = g.x + ((image + y + k) * g.width + x + j) * g.channels + c;
          const std::int64_t left = g.channels - c;
          if (left >= kShorts || from + kShorts <= g.end) {
            d[k] = load_shorts(from, change);
          } else {
            std::uint8_t rest[kShorts] = {};
            std::memcpy(rest, from, static_cast<std::size_t>(left));
            d[k] = load_shorts(rest, change);
          }
        }
        pixel_line(d, u);
        for (int k = 0; k < kPatch; ++k) t[k][j] = u[k];
      }
      std::int16_t* to = v + i * lda + c;
#pragma GCC unroll 1
      for (int k = 0; k < kPatch; ++k) {
        ShortBits u[kPatch];
        pixel_line(t[k], u);
        for (int j = 0; j < kPatch; ++j, to += step) *reinterpret_cast<UnalignedShorts*>(to) = u[j];
      }
    }
  }
}

// G g, each row times its denominator.
inline void filter_line(const BitVec (&g)[3], BitVec (&u)[kPatch]) {
  const BitVec even = g[0] + g[2], wide = g[0] + (g[2] << 2), twice = g[1] << 1;
  u[0] = g[0];
  u[1] = BitVec{} - even - g[1];
  u[2] = g[1] - even;
  u[3] = wide + twice;
  u[4] = wide - twice;
  u[5] = g[2];
}

void winograd_filters(const std::int32_t* taps, std::int16_t* u, std::int64_t step) {
  BitVec all[2][kPatch][kPatch];
#pragma GCC unroll 1
  for (int c = 0; c < 2; ++c, taps += 9 * kLanes) {
    BitVec t[kPatch][3];
#pragma GCC unroll 1
    for (int j = 0; j < 3; ++j) {
      const BitVec g[3] = {load_bits(taps + j * kLanes), load_bits(taps + (3 + j) * kLanes), load_bits(taps + (6 + j) * kLanes)};
      BitVec r[kPatch];
      filter_line(g, r);
      for (int i = 0; i < kPatch; ++i) t[i][j] = r[i];
    }
#pragma GCC unroll 1
    for (int i = 0; i < kPatch; ++i) filter_line(t[i], all[c][i]);
  }
#pragma GCC unroll 1
  for (int i = 0; i < kPatch; ++i) {
#pragma GCC unroll 1
    for (int j = 0; j < kPatch; ++j, u += step) store_bits(u, (all[0][i][j] & 0xffffu) | all[1][i][j] << 16);
  }
}

void winograd_product(const simd_qgemm::WinogradProduct& p) {
  alignas(64) static constexpr std::int32_t kZeros[kWordColumns] = {};
  const std::int64_t none = 0;
  for (std::int64_t column = 0; column < p.n;) {
    const int width = word_width(p.n - column);
    const std::int64_t columns = kLanes << width;
    const std::int16_t* const b = p.b + 2 * (column * p.all_pairs + p.pair * columns);
    for (std::int64_t row = 0, rows = 0; row < p.m; row += rows) {
      rows = word_rows(p.m - row);
      kWordMicros[rows / 2][width]({p.a + row * p.lda, p.lda, &none, 1, p.pairs, b, p.pairs, kZeros, 0,
                                    p.c + row * simd_qgemm::kWinogradColumns + column, simd_qgemm::kWinogradColumns});
    }
    column += columns;
  }
}

// A^T m, each column times 24 over the denominator, and each row over what it has in common: 1, 2, 4 and 4.
inline void packed_gemm_line(const BitVec (&m)[kPatch], BitVec (&y)[4]) {
  const BitVec even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
  y[0] = m[0] * 6u + (even_a << 2) + even_b;
  y[1] = (odd_a << 1) + odd_b;
  y[2] = even_a + even_b;
  y[3] = odd_a + (odd_b << 1) + m[5] * 6u;
}

void winograd_outputs(const simd_qgemm::WinogradOutputs& o) {
  constexpr int kTwos[4] = {0, 1, 2, 2};
  constexpr std::uint32_t kNinth = 0x38e38e39u;  // times 9 it is 1
  for (std::int64_t i = 0; i < o.tiles; ++i) {
    for (std::int64_t c = 0; c < o.n; c += kLanes) {
      const std::int32_t* m = o.products + i * simd_qgemm::kWinogradColumns + c;
      std::int32_t* to = o.sums + i * simd_qgemm::kWinogradOutputs * simd_qgemm::kWinogradColumns + c;
      BitVec t[4][kPatch];
#pragma GCC unroll 1
      for (int j = 0; j < kPatch; ++j) {
        BitVec d[kPatch], r[4];
        for (int k = 0; k < kPatch; ++k) d[k] = load_bits(m + (k * kPatch + j) * o.step);
        packed_gemm_line(d, r);
        for (int k = 0; k < 4; ++k) t[k][j] = r[k];
      }
#pragma GCC unroll 1
      for (int k = 0; k < 4; ++k) {
        BitVec r[4];
        packed_gemm_line(t[k], r);
        for (int j = 0; j < 4; ++j, to += simd_qgemm::kWinogradColumns) {
          const BitVec y = reinterpret_cast<BitVec>(reinterpret_cast<IntVec>(r[j] * kNinth) >> (6 - kTwos[k] - kTwos[j]));
          store_bits(to, load_bits(o.add ? to : o.start + c) + y);
        }
      }
    }
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
