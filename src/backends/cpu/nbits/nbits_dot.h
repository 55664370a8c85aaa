// The loops of nbits/nbits_dot_loops.h for one cluster or extension: by vpdpbusd or usdot where there is one; by pmaddubsw with
// AVX2, whose sums of two products of 4 and 8 bits fit 16 bits, or by sdot, which takes no byte above 127 (there 8 bits are two
// halves of 4); else by pmaddwd. Included by nbits_dot_loops*.cc only.
#pragma once

#include <cstring>

#include "backends/cpu/nbits/nbits_dot_loops.h"
#include "backends/cpu/simd/finish.h"
#include "backends/cpu/simd/lanes.h"
#include "ops/row_quantization.h"

namespace evn::EVN_ISA {
namespace {

using simd_nbits_dot::Rows;
using simd_nbits_dot::Tile;
using simd_nbits_dot::Weights;

constexpr int kDotNv = 2;
constexpr int kDotWidth = kDotNv * kLanes;
#if defined(__AVX512F__)
constexpr int kDotRows = 6;  // whose sums stay in registers
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr int kDotRows = 6;
#elif defined(__AVX2__)
constexpr int kDotRows = 4;
#else
constexpr int kDotRows = 1;  // for the few machines of this kind the code is better small
#endif
// Multiply-adds that are a unit of work.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr std::int64_t kDotsPerUnit = 4;
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr std::int64_t kDotsPerUnit = 2;
#else
constexpr std::int64_t kDotsPerUnit = 1;
#endif

typedef std::int32_t UnalignedInts __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline IntVec load_ints(const void* p) { return *reinterpret_cast<const UnalignedInts*>(p); }

inline std::int32_t word_at(const std::int8_t* p) {
  std::int32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// sum += the products of four bytes each, those of w unsigned (4 bits where Bits is 4), those of a signed.
template <int Bits>
inline void add_dots(IntVec w, IntVec a, IntVec& sum) {
#if defined(__AVX512VNNI__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(a));
#elif defined(__AVXVNNI__)
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(a));
#elif defined(__AVX2__)
#if defined(__AVX512F__)
  const auto pairs = [](IntVec x, IntVec y) {
    return _mm512_maddubs_epi16(reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(y));
  };
  const auto fours = [](__m512i x, short by) { return reinterpret_cast<IntVec>(_mm512_madd_epi16(x, _mm512_set1_epi16(by))); };
#else
  const auto pairs = [](IntVec x, IntVec y) {
    return _mm256_maddubs_epi16(reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(y));
  };
  const auto fours = [](__m256i x, short by) { return reinterpret_cast<IntVec>(_mm256_madd_epi16(x, _mm256_set1_epi16(by))); };
#endif
  if (Bits == 4) {
    sum += fours(pairs(w, a), 1);
  } else {
    const IntVec half = splat_int(0x0f0f0f0f);
    sum += fours(pairs(w & half, a), 1) + fours(pairs(w >> 4 & half, a), 16);
  }
#elif defined(__x86_64__)
  const auto x = reinterpret_cast<__m128i>(w), y = reinterpret_cast<__m128i>(a);
  const __m128i low = _mm_set1_epi16(255);
  const __m128i even = _mm_madd_epi16(_mm_and_si128(x, low), _mm_srai_epi16(_mm_slli_epi16(y, 8), 8));
  const __m128i odd = _mm_madd_epi16(_mm_srli_epi16(x, 8), _mm_srai_epi16(y, 8));
  sum += reinterpret_cast<IntVec>(even) + reinterpret_cast<IntVec>(odd);
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  sum = reinterpret_cast<IntVec>(
      vusdotq_s32(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<uint8x16_t>(w), reinterpret_cast<int8x16_t>(a)));
#elif defined(__ARM_FEATURE_DOTPROD)
  const auto dots = [](IntVec to, IntVec x, IntVec y) {
    return reinterpret_cast<IntVec>(
        vdotq_s32(reinterpret_cast<int32x4_t>(to), reinterpret_cast<int8x16_t>(x), reinterpret_cast<int8x16_t>(y)));
  };
  if (Bits == 4) {
    sum = dots(sum, w, a);
  } else {
    const IntVec half = splat_int(0x0f0f0f0f);
    sum = dots(sum, w & half, a) + (dots(IntVec{}, w >> 4 & half, a) << 4);
  }
#else
  for (int byte = 0; byte < 32; byte += 8) sum += (w >> byte & 255) * (a << (24 - byte) >> 24);
#endif
}

// The sums of one block: R rows by kDotNv vectors of columns. Two chains where one row would wait for its own.
template <int Bits, int R>
__attribute__((always_inline)) inline void block_dots(const char* w, std::int64_t block, const std::int8_t* const (&a)[R],
                                                      IntVec (&sum)[R][kDotNv]) {
  const IntVec half = splat_int(0x0f0f0f0f);
  constexpr int kWords = Bits == 4 ? 2 : 1;  // of A to a word of W
  IntVec other[kDotNv] = {};
  for (std::int64_t k = 0; k < block; k += 4 * kWords, w += kDotWidth * 4) {
    IntVec x[kWords][kDotNv];
#pragma GCC unroll 2
    for (int v = 0; v < kDotNv; ++v) {
      const IntVec words = load_ints(w + v * 4 * kLanes);
      x[0][v] = Bits == 4 ? words & half : words;
      if (Bits == 4) x[kWords - 1][v] = words >> 4 & half;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int i = 0; i < kWords; ++i) {
        const IntVec numbers = splat_int(word_at(a[r] + k + 4 * i));
#pragma GCC unroll 2
        for (int v = 0; v < kDotNv; ++v) add_dots<Bits>(x[i][v], numbers, R == 1 && i == 1 ? other[v] : sum[r][v]);
      }
    }
  }
  for (int v = 0; v < kDotNv && R == 1; ++v) sum[0][v] += other[v];
}

// kLanes bytes, widened.
inline IntVec zeros_from(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_maskz_cvtepu8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  IntVec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}

#if defined(__AVX512F__)
inline Vec widened_halves(const void* p) {
  return _mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(static_cast<const __m256i_u*>(p)));
}
#elif defined(__AVX2__)
inline Vec widened_halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i_u*>(p))); }
#endif

// Scales [at, at + kLanes).
inline Vec scales_at(const Weights& w, std::int64_t at) {
#if defined(__AVX2__)
  if (w.half_scales) return widened_halves(static_cast<const std::uint16_t*>(w.scales) + at);
#endif
  return load(static_cast<const float*>(w.scales) + at);
}

// A range of blocks of one panel. Unless it reaches the last block, the sums of the R rows are stored in `sums`, from which the
// next range starts.
struct Part {
  std::int64_t begin, end;
  float* sums;  // [R][kDotWidth]
};

// Rows from `row` on by the columns of one panel.
template <int Bits, int R>
void panel_rows(const Tile& t, const Chain& chain, std::int64_t row, std::int64_t panel, std::int64_t column, const Part& part) {
  const Weights& w = t.w;
  const std::int64_t bytes = w.block * kDotWidth / 8 * Bits;
  const char* elements = static_cast<const char*>(w.elements) + panel * w.panel_bytes(kDotWidth) + part.begin * bytes;
  const std::int8_t* a[R];
  Vec acc[R][kDotNv];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    a[r] = t.a.numbers + ((row + r) * w.blocks + part.begin) * w.block;
    for (int v = 0; v < kDotNv; ++v) acc[r][v] = part.begin > 0 ? load(part.sums + (r * kDotNv + v) * kLanes) : zero();
  }
  std::int64_t numbers = (panel * w.blocks + part.begin) * kDotWidth;
  for (std::int64_t b = part.begin; b < part.end; ++b, numbers += kDotWidth, elements += bytes) {
    IntVec sum[R][kDotNv];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const std::int32_t of_a = t.a.sums[(row + r) * w.blocks + b];
#pragma GCC unroll 2
      for (int v = 0; v < kDotNv; ++v) {
        if (w.zeros != nullptr) sum[r][v] = zeros_from(w.zeros + numbers + v * kLanes) * -of_a;
        else sum[r][v] = splat_int(w.float_zeros != nullptr ? 0 : -of_a * (1 << (Bits - 1)));
      }
    }
    block_dots<Bits>(elements, w.block, a, sum);
#pragma GCC unroll 2
    for (int v = 0; v < kDotNv; ++v) {
      const Vec scale = scales_at(w, numbers + v * kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const std::int64_t at = (row + r) * w.blocks + b;
        Vec x = __builtin_convertvector(sum[r][v], Vec);
        if (w.float_zeros != nullptr) x = x - load(w.float_zeros + numbers + v * kLanes) * splat(static_cast<float>(t.a.sums[at]));
        acc[r][v] = fma(scale * splat(t.a.scales[at]), x, acc[r][v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) a[r] += w.block;
  }
  if (part.end < w.blocks) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kDotNv; ++v) store(part.sums + (r * kDotNv + v) * kLanes, acc[r][v]);
    }
    return;
  }
  const std::int64_t left = t.n - column;
  for (int r = 0; r < R; ++r) {
    float* const c = t.c + (row + r) * t.ldc + column;
    for (int v = 0; v < kDotNv && left > v * kLanes; ++v) {
      const std::int64_t lanes = left - v * kLanes;
      Vec x = acc[r][v];
      if (t.bias != nullptr) x = x + load_some(t.bias + column + v * kLanes, lanes);
      if (t.residual != nullptr) x = x + load_some(t.residual + (row + r) * t.ldr + column + v * kLanes, lanes);
      store_some(c + v * kLanes, bounded(chain, x), lanes);
    }
    apply_rest(chain, c, left < kDotWidth ? left : kDotWidth);
  }
}

template <int Bits, int R>
bool run_panel(const Tile& t, const Chain& chain, std::int64_t row, std::int64_t panel, std::int64_t column) {
  constexpr std::int64_t kMostNumbers = 1 << 14;  // of a row between two cancellation points
  const std::int64_t most = t.w.block < kMostNumbers ? kMostNumbers / t.w.block : 1;
  alignas(64) float sums[R * kDotWidth];
  for (Part part{0, 0, sums}; part.begin < t.w.blocks; part.begin = part.end) {
    part.end = t.w.blocks - part.begin < most ? t.w.blocks : part.begin + most;
    if (stops(t.points, R * (part.end - part.begin) * t.w.block * kDotWidth / kDotsPerUnit)) return false;
    panel_rows<Bits, R>(t, chain, row, panel, column, part);
  }
  return true;
}

template <int Bits>
bool run_rows(const Tile& t, const Chain& chain, std::int64_t panel, std::int64_t column) {
  std::int64_t row = 0;
  for (; row + kDotRows <= t.m; row += kDotRows) {
    if (!run_panel<Bits, kDotRows>(t, chain, row, panel, column)) return false;
  }
  for (; row < t.m; ++row) {
    if (!run_panel<Bits, 1>(t, chain, row, panel, column)) return false;
  }
  return true;
}

void run_dots(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  std::int64_t panel = t.panel;
  for (std::int64_t column = 0; column < t.n; column += kDotWidth, ++panel) {
    if (!(t.w.bits == 4 ? run_rows<4>(t, chain, panel, column) : run_rows<8>(t, chain, panel, column))) return;
  }
}

// Lane i of v[0] becomes f of all lanes of v[i], taken together in a tree.
template <typename F>
inline void fold_ints(IntVec (&v)[kLanes], F&& f) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < half; ++i) {
      const Vec a = reinterpret_cast<Vec>(v[i]), b = reinterpret_cast<Vec>(v[i + half]);
      v[i] = f(reinterpret_cast<IntVec>(zip_low(a, b)), reinterpret_cast<IntVec>(zip_high(a, b)));
    }
  }
}

inline void store_bytes(std::int8_t* to, IntVec x) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), _mm512_maskz_cvtepi32_epi8(kAllLanes, reinterpret_cast<__m512i>(x)));
#else
  typedef std::int8_t Bytes __attribute__((vector_size(kLanes)));
  const Bytes bytes = __builtin_convertvector(x, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
#endif
}

// The largest magnitude of n floats, as bits: they have the order of the magnitudes, those of infinities and NaN above all.
inline IntVec largest_bits(const float* a, std::int64_t n) {
  IntVec most = {};
  const auto take = [&](Vec x) {
    const IntVec bits = as_int(abs_of(x));
    most = bits > most ? bits : most;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) take(load(a + i));
  if (i < n) take(load_n(a + i, n - i));
  return most;
}

// A block of n floats as numbers of a factor, filled up with 0; returns their sum, over the lanes.
inline IntVec quantize_block(const float* a, std::int64_t n, std::int64_t block, float factor, std::int8_t* numbers) {
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23
  const Vec by = splat(factor);
  IntVec sum = {};
  std::int64_t i = 0;
  const auto put = [&](Vec x) {
    const IntVec rounded = reinterpret_cast<IntVec>(reinterpret_cast<BitVec>(x * by + magic) - reinterpret_cast<BitVec>(magic));
    sum += rounded;
    store_bytes(numbers + i, rounded);
    i += kLanes;
  };
  if (factor != 0) {
    while (i + kLanes <= n) put(load(a + i));
    if (i < n) put(load_n(a + i, n - i));
  }
  for (; i < block; i += kLanes) store_bytes(numbers + i, IntVec{});
  return sum;
}

// As many blocks at a time as there are lanes, which one tree over the lanes serves.
void quantize_row(const float* a, std::int64_t k, std::int64_t block, std::int8_t* numbers, float* scales, std::int32_t* sums) {
  const auto length = [&](std::int64_t begin) { return k - begin < block ? k - begin : block; };
  for (std::int64_t begin = 0; begin < k; begin += kLanes * block) {
    IntVec v[kLanes];
    int count = 0;
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t at = begin + i * block;
      v[i] = at < k ? largest_bits(a + at, length(at)) : IntVec{};
      count += at < k ? 1 : 0;
    }
    fold_ints(v, [](IntVec x, IntVec y) { return x > y ? x : y; });
    float factors[kLanes];
    for (int i = 0; i < count; ++i) {
      const RowQuantization q = row_quantization(__builtin_bit_cast(float, static_cast<std::int32_t>(v[0][i])));
      factors[i] = q.factor;
      *scales++ = q.scale;
    }
    for (int i = 0; i < kLanes; ++i) {
      v[i] = IntVec{};
      if (i >= count) continue;
      const std::int64_t at = begin + i * block;
      v[i] = quantize_block(a + at, length(at), block, factors[i], numbers);
      numbers += block;
    }
    fold_ints(v, [](IntVec x, IntVec y) { return x + y; });
    for (int i = 0; i < count; ++i) *sums++ = v[0][i];
  }
}

}  // namespace

extern const simd_nbits_dot::Loops loops_nbits_dot;
#if defined(__AVX2__)
constexpr bool kTakesHalfScales = true;
#else
constexpr bool kTakesHalfScales = false;
#endif
const simd_nbits_dot::Loops loops_nbits_dot = {
    .width = kDotWidth, .takes_half_scales = kTakesHalfScales, .quantize = quantize_row, .run = run_dots};

}  // namespace evn::EVN_ISA
