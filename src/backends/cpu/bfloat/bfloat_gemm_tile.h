// What the loops of bfloat/bfloat_gemm_loops.h share: floats on their way in, and how sums are stored. Included by
// simd/bfloat_gemm_*.cc only.
#pragma once

#include "backends/cpu/bfloat/bfloat_gemm_loops.h"
#include "backends/cpu/simd/epilogue.h"

namespace evn::EVN_ISA {
namespace {

using simd_bfloat_gemm::Tile;

constexpr std::int64_t kSumColumns = 2 * kLanes;            // of a block of sums that is stored
[[maybe_unused]] constexpr std::int64_t kPairsPerUnit = 4;  // multiply-adds by vectors that are a unit of work

#if defined(__AVX512FP16__)
// Rounded to float16, nearest even; what is 65520 and more is infinite.
inline __m512i narrowed(Vec high, Vec low) {
  const __m256i lower = _mm512_maskz_cvtps_ph(kAllLanes, reinterpret_cast<__m512>(low), _MM_FROUND_TO_NEAREST_INT);
  const __m256i upper = _mm512_maskz_cvtps_ph(kAllLanes, reinterpret_cast<__m512>(high), _MM_FROUND_TO_NEAREST_INT);
  return __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7);
}
inline Vec widened(__m256i bits) { return reinterpret_cast<Vec>(_mm512_maskz_cvtph_ps(kAllLanes, bits)); }
constexpr std::int16_t kInfinite = 0x7c00;
#else
// Rounded to bfloat16, nearest even; NaN stays NaN, and numbers below 2^-126 become 0.
inline __m512i narrowed(Vec high, Vec low) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
inline Vec widened(__m256i bits) {
  return reinterpret_cast<Vec>(_mm512_maskz_slli_epi32(kAllLanes, _mm512_maskz_cvtepu16_epi32(kAllLanes, bits), 16));
}
constexpr std::int16_t kInfinite = 0x7f80;
#endif

// Finds what is not finite among elements.
class FiniteCheck {
 public:
  void see(__m512i bits) { most_ = _mm512_maskz_max_epu16(kAll, most_, _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff))); }
  bool all() const { return _mm512_cmpge_epu16_mask(most_, _mm512_set1_epi16(kInfinite)) == 0; }

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
    const __m512i bits = narrowed(high, low);
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

// Some rows of some columns, which begin at (line, x) and `column`; `sums` has the products' sums, rows `ld` apart, of whole
// kSumColumns, and may be written over.
struct SumBlock {
  float* sums;
  std::int64_t rows, line, x, column, columns, ld = kSumColumns;
};

// The columns of a block, as two vectors of which the second may be empty.
struct Columns {
  std::int64_t low, high;

  explicit Columns(std::int64_t n) : low(n < kLanes ? n : kLanes), high(n < kLanes ? 0 : n - kLanes) {}
};

inline void put(const Tile& t, const Columns& columns, std::int64_t at, Vec low, Vec high) {
  if (t.to_bfloat) {
    _mm512_mask_storeu_epi16(static_cast<std::uint16_t*>(t.c) + at, pairs_mask(columns.low + columns.high), narrowed(high, low));
    return;
  }
  float* const c = static_cast<float*>(t.c) + at;
  store_n(c, low, columns.low);
  store_n(c + kLanes, high, columns.high);
}

#if defined(__AMX_BF16__)
enum class Residual { kNone, kFloat, kBfloat };

// The usual case: two whole vectors of columns, one bias for all rows, and no steps but bounds. Where vectors multiply, that takes
// longer than to store.
template <bool to_bfloat, Residual residual>
void store_whole(const Tile& t, const Chain& chain, const SumBlock& b) {
  const std::int64_t first = b.line * t.line_c + b.x * t.ldc + b.column,
                     first_residual = b.line * t.line_r + b.x * t.ldr + b.column;
  const std::int64_t ldc = t.ldc, ldr = t.ldr, rows = b.rows;
  const Vec scale = splat(t.init_scale), least = splat(chain.low), most = splat(chain.high);
  const float* const init = t.init == nullptr ? nullptr : t.init + b.column * t.init_column;
  const bool by_column = t.init_column != 0;
  const Vec low_bias = init == nullptr ? zero() : scale * (by_column ? load(init) : splat(*init));
  const Vec high_bias = init == nullptr ? zero() : scale * (by_column ? load(init + kLanes) : splat(*init));
  const float* sums = b.sums;
  const float* added = static_cast<const float*>(t.residual) + (residual == Residual::kFloat ? first_residual : 0);
  const std::uint16_t* narrow =
      static_cast<const std::uint16_t*>(t.residual) + (residual == Residual::kBfloat ? first_residual : 0);
  float* c = static_cast<float*>(t.c) + (to_bfloat ? 0 : first);
  std::uint16_t* c_narrow = static_cast<std::uint16_t*>(t.c) + (to_bfloat ? first : 0);
  for (std::int64_t r = 0; r < rows; ++r, sums += b.ld) {
    Vec low = load(sums) + low_bias, high = load(sums + kLanes) + high_bias;
    if constexpr (residual == Residual::kFloat) {
      low += load(added);
      high += load(added + kLanes);
      added += ldr;
    } else if constexpr (residual == Residual::kBfloat) {
      low += widened(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(narrow)));
      high += widened(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(narrow + kLanes)));
      narrow += ldr;
    }
    low = min_of(most, max_of(least, low));
    high = min_of(most, max_of(least, high));
    if constexpr (to_bfloat) {
      _mm512_storeu_si512(c_narrow, narrowed(high, low));
      c_narrow += ldc;
    } else {
      store(c, low);
      store(c + kLanes, high);
      c += ldc;
    }
  }
}

template <bool to_bfloat>
void store_whole(const Tile& t, const Chain& chain, const SumBlock& b) {
  if (t.residual == nullptr) return store_whole<to_bfloat, Residual::kNone>(t, chain, b);
  if (t.residual_is_bfloat) return store_whole<to_bfloat, Residual::kBfloat>(t, chain, b);
  store_whole<to_bfloat, Residual::kFloat>(t, chain, b);
}
#endif

// At most kSumColumns columns.
void store_some_sums(const Tile& t, const Chain& chain, const SumBlock& b) {
  const bool rest = chain.rest_count > 0;
#if defined(__AMX_BF16__)
  if (!rest && b.columns == kSumColumns && t.init_row == 0) {
    return t.to_bfloat ? store_whole<true>(t, chain, b) : store_whole<false>(t, chain, b);
  }
#endif
  const std::int64_t first = b.line * t.line_c + b.x * t.ldc + b.column;
  const std::int64_t first_residual = b.line * t.line_r + b.x * t.ldr + b.column;
  const float* init = t.init == nullptr ? nullptr : t.init + (b.line * t.width + b.x) * t.init_row + b.column * t.init_column;
  const Columns columns(b.columns);
  const bool bias_is_same = t.init_row == 0;
  const Vec scale = splat(t.init_scale);
  Vec low_bias = zero(), high_bias = zero();
  for (std::int64_t r = 0; r < b.rows; ++r) {
    float* const sums = b.sums + r * b.ld;
    Vec low = load(sums), high = load(sums + kLanes);
    if (init != nullptr) {
      if (r == 0 || !bias_is_same) {
        low_bias = scale * (t.init_column == 0 ? splat(*init) : load_n(init, columns.low));
        high_bias = scale * (t.init_column == 0 ? splat(*init) : load_n(init + kLanes, columns.high));
        init += t.init_row;
      }
      low += low_bias;
      high += high_bias;
    }
    if (t.residual != nullptr && t.residual_is_bfloat) {
      const auto* const p = static_cast<const std::uint16_t*>(t.residual) + first_residual + r * t.ldr;
      low += widened(_mm256_maskz_loadu_epi16(mask_of(columns.low), p));
      high += widened(_mm256_maskz_loadu_epi16(mask_of(columns.high), p + kLanes));
    } else if (t.residual != nullptr) {
      const float* const p = static_cast<const float*>(t.residual) + first_residual + r * t.ldr;
      low += load_n(p, columns.low);
      high += load_n(p + kLanes, columns.high);
    }
    low = bounded(chain, low);
    high = bounded(chain, high);
    if (rest) {
      store(sums, low);
      store(sums + kLanes, high);
    } else {
      put(t, columns, first + r * t.ldc, low, high);
    }
  }
  if (!rest) return;
  apply_rest(chain, b.sums, b.rows, b.ld, b.columns);
  for (std::int64_t r = 0; r < b.rows; ++r) {
    const float* const sums = b.sums + r * b.ld;
    put(t, columns, first + r * t.ldc, load(sums), load(sums + kLanes));
  }
}

void store_sums(const Tile& t, const Chain& chain, const SumBlock& b) {
  for (std::int64_t j = 0; j < b.columns; j += kSumColumns) {
    const std::int64_t left = b.columns - j;
    store_some_sums(t, chain, {b.sums + j, b.rows, b.line, b.x, b.column + j, left < kSumColumns ? left : kSumColumns, b.ld});
  }
}

}  // namespace
}  // namespace evn::EVN_ISA
