// What the loops of simd/bfloat_dot.h share: floats on their way in, and how sums are stored. Included by simd/bfloat_dot_*.cc only.
#pragma once

#include "backends/cpu/simd/bfloat_dot.h"
#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

using simd_bfloat_dot::Tile;

constexpr std::int64_t kSumColumns = 2 * kLanes;  // of a block of sums that is stored

inline __m256i round_to_bfloat(Vec x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }

// Finds what is not finite among bfloat16.
class FiniteCheck {
 public:
  void see(__m512i bits) { most_ = _mm512_maskz_max_epu16(kAll, most_, _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff))); }
  bool all() const { return _mm512_cmpge_epu16_mask(most_, _mm512_set1_epi16(0x7f80)) == 0; }

 private:
  static constexpr __mmask32 kAll = 0xffffffff;
  __m512i most_ = _mm512_setzero_si512();
};

inline __mmask32 pairs_mask(std::int64_t n) { return n < 32 ? (1u << n) - 1u : 0xffffffffu; }

bool convert(const float* from, std::int64_t n, std::uint16_t* to) {
  FiniteCheck check;
  for (std::int64_t i = 0; i < n; i += 32) {
    const std::int64_t left = n - i;
    const Vec low = left >= 16 ? load(from + i) : load_n(from + i, left);
    const Vec high = left >= 32 ? load(from + i + 16) : left > 16 ? load_n(from + i + 16, left - 16) : zero();
    const __m512i bits = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    check.see(bits);
    _mm512_mask_storeu_epi16(to + i, pairs_mask(left), bits);
  }
  return check.all();
}

bool copy(const std::uint16_t* from, std::int64_t n, std::uint16_t* to) {
  FiniteCheck check;
  for (std::int64_t i = 0; i < n; i += 32) {
    const __mmask32 mask = pairs_mask(n - i);
    const __m512i bits = _mm512_maskz_loadu_epi16(mask, from + i);
    check.see(bits);
    _mm512_mask_storeu_epi16(to + i, mask, bits);
  }
  return check.all();
}

// Some rows of at most kSumColumns columns, which begin at (line, x) and `column`; `sums` has the products' sums, kSumColumns apart,
// and may be written over.
struct SumBlock {
  float* sums;
  std::int64_t rows, line, x, column, columns;
};

inline void put(const Tile& t, std::int64_t at, Vec x, std::int64_t n) {
  if (t.to_bfloat) {
    _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(t.c) + at, mask_of(n), round_to_bfloat(x));
  } else if (n == kLanes) {
    store(static_cast<float*>(t.c) + at, x);
  } else {
    store_n(static_cast<float*>(t.c) + at, x, n);
  }
}

void store_sums(const Tile& t, const Chain& chain, const SumBlock& b) {
  const bool rest = chain.rest_count > 0;
  const std::int64_t first = b.line * t.line_c + b.x * t.ldc + b.column;
  const float* const residual = t.residual == nullptr ? nullptr : t.residual + b.line * t.line_r + b.x * t.ldr + b.column;
  const float* const init =
      t.init == nullptr ? nullptr : t.init + (b.line * t.width + b.x) * t.init_row + b.column * t.init_column;
  for (std::int64_t j = 0; j < b.columns; j += kLanes) {
    const std::int64_t left = b.columns - j, n = left < kLanes ? left : kLanes;
    const bool by_column = t.init_row == 0;
    const auto start = [&](std::int64_t r) {
      const float* const p = init + r * t.init_row;
      return splat(t.init_scale) * (t.init_column == 0 ? splat(*p) : load_n(p + j, n));
    };
    const Vec same = init != nullptr && by_column ? start(0) : zero();
    for (std::int64_t r = 0; r < b.rows; ++r) {
      Vec x = load(b.sums + r * kSumColumns + j);
      if (init != nullptr) x += by_column ? same : start(r);
      if (residual != nullptr) x += n == kLanes ? load(residual + r * t.ldr + j) : load_n(residual + r * t.ldr + j, n);
      x = bounded(chain, x);
      if (rest) {
        store(b.sums + r * kSumColumns + j, x);
      } else {
        put(t, first + r * t.ldc + j, x, n);
      }
    }
  }
  if (!rest) return;
  apply_rest(chain, b.sums, b.rows, kSumColumns, b.columns);
  for (std::int64_t j = 0; j < b.columns; j += kLanes) {
    const std::int64_t left = b.columns - j, n = left < kLanes ? left : kLanes;
    for (std::int64_t r = 0; r < b.rows; ++r) put(t, first + r * t.ldc + j, load(b.sums + r * kSumColumns + j), n);
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
