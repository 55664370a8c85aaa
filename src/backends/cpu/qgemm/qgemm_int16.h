// Products of bytes that were widened to 16 bits, for clusters without vpdpbusd: pmaddwd multiplies two k at a time and nothing is
// widened in the loop. A is widened by who copies it, B here, some columns at a time, for all rows of a tile. Included by
// qgemm/qgemm_tile.h only.
#pragma once

#include "backends/cpu/qgemm/qgemm_loops.h"
#include "backends/cpu/qgemm/qgemm_store.h"

namespace evn::EVN_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kWordMr = 6, kWordNv = 4;
#else
constexpr int kWordMr = 6, kWordNv = 2;
#endif
constexpr std::int64_t kWordColumns = kWordNv * kLanes;

typedef std::int16_t ShortVec __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t ShortBits __attribute__((vector_size(4 * kLanes)));

// R rows of A by NV vectors of columns.
struct WordMicro {
  const std::int16_t* a;
  std::int64_t lda;
  const std::int64_t* offsets;
  std::int64_t segments, pairs;  // pairs: of k, in a segment
  const std::int16_t* b;         // [segment][b_pairs][NV][lane][2]
  std::int64_t b_pairs;
  const std::int32_t* start;  // of each column, and row
  std::int64_t start_step;    // from one row to the next
  std::int32_t* sums;
  std::int64_t ld;
};

template <int R, int NV>
void word_micro(const WordMicro& g) {
  BitVec acc[R][NV];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[r][v] = load_bits(g.start + r * g.start_step + v * kLanes);
  }
  const std::int16_t* b = g.b;
  for (std::int64_t s = 0; s < g.segments; ++s, b += g.b_pairs * NV * 2 * kLanes) {
    const std::int16_t* rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = g.a + r * g.lda + g.offsets[s];
    const std::int16_t* at = b;
    for (std::int64_t p = 0; p < g.pairs; ++p, at += NV * 2 * kLanes) {
      BitVec bv[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) bv[v] = load_bits(at + v * 2 * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        std::uint32_t two;
        std::memcpy(&two, rows[r] + 2 * p, sizeof two);
        const BitVec x = splat_bits(two);
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) acc[r][v] += add_pairs(x, bv[v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store_bits(g.sums + r * g.ld + v * kLanes, acc[r][v]);
  }
}

using WordMicroFn = void (*)(const WordMicro&);
#if defined(__AVX512F__)
#define EVN_WORD_ROW(R) \
  { word_micro<R, 1>, word_micro<R, 2>, word_micro<R, 4> }
#else
#define EVN_WORD_ROW(R) \
  { word_micro<R, 1>, word_micro<R, 2> }
#endif
// By half the rows and the power of two that the vectors of columns are. Few rows wait for nothing that many do not: odd ones are
// not worth code.
constexpr WordMicroFn kWordMicros[kWordMr / 2 + 1][kWordNv == 4 ? 3 : 2] = {EVN_WORD_ROW(1), EVN_WORD_ROW(2), EVN_WORD_ROW(4),
                                                                            EVN_WORD_ROW(6)};
#undef EVN_WORD_ROW

inline std::int64_t word_rows(std::int64_t left) { return left >= kWordMr ? kWordMr : left > 1 ? left / 2 * 2 : 1; }

// The widest that so many columns fill.
inline int word_width(std::int64_t columns) {
  const std::int64_t blocks = (columns + kLanes - 1) / kLanes;
  return kWordNv == 4 && blocks >= 4 ? 2 : blocks >= 2 ? 1 : 0;
}

// 2 * kLanes bytes as 16 bits.
inline BitVec load_pairs(const std::int8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<BitVec>(
      _mm512_maskz_cvtepi8_epi16(0xffffffffu, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p))));
#else
  return reinterpret_cast<BitVec>(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
#endif
}

constexpr std::int64_t kMostPairs = 1024;  // of k between two cancellation points

// `pairs` pairs of k of NV blocks of B, `block` bytes apart. False: the run stops.
bool widen_block(const std::int8_t* b, std::int64_t pairs, std::int64_t block, int nv, std::int16_t* to, CancelPoints* points) {
  for (int v = 0; v < nv; ++v) {
    for (std::int64_t p = 0; p < pairs;) {
      const std::int64_t end = pairs - p < 2 * kMostPairs ? pairs : p + kMostPairs;
      if (stops(points, (end - p) * 2 * kLanes)) return false;
      for (; p < end; ++p) store_bits(to + (p * nv + v) * 2 * kLanes, load_pairs(b + v * block + p * 2 * kLanes));
    }
  }
  return true;
}

inline bool has_many_pairs(std::int64_t segments, std::int64_t pairs) { return segments * pairs > kMostPairs + kMostPairs / 2; }
constexpr std::int64_t kMostWordWork = 1 << 17;  // multiply-adds between two cancellation points where k is not split

// Multiplies over a long k in parts of kMostPairs pairs. Returns false if the run is to stop.
inline bool multiply_words(std::int64_t rows, int width, WordMicro g, CancelPoints* points) {
  const WordMicroFn micro = kWordMicros[rows / 2][width];
  const std::int64_t columns = kLanes << width;
  const std::int64_t segments = g.segments, pairs = g.pairs;
  const std::int16_t* const a = g.a;
  const std::int16_t* const b = g.b;
  g.segments = 1;
  for (std::int64_t s = 0; s < segments; ++s, ++g.offsets) {
    for (std::int64_t p = 0; p < pairs; p += g.pairs) {
      g.pairs = pairs - p < kMostPairs + kMostPairs / 2 ? pairs - p : kMostPairs;
      g.a = a + 2 * p;
      g.b = b + (s * g.b_pairs + p) * 2 * columns;
      if (stops(points, rows * columns * g.pairs * 2)) return false;
      micro(g);
      g.start = g.sums;
      g.start_step = g.ld;
    }
  }
  return true;
}

constexpr std::int64_t kShorts = 2 * kLanes;
typedef ShortBits UnalignedShorts __attribute__((aligned(2), may_alias));

// 2 * kLanes bytes as 16 bits.
inline ShortBits load_shorts(const std::uint8_t* p, std::uint8_t change) {
#if defined(__AVX512F__)
  const ShortBits v = reinterpret_cast<ShortBits>(
      _mm512_maskz_cvtepu8_epi16(0xffffffffu, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p))));
#else
  const ShortBits v = reinterpret_cast<ShortBits>(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
#endif
  return v ^ change;
}

void widen_bytes(const std::uint8_t* from, bool flip, std::int64_t n, std::int16_t* to) {
  const std::uint8_t change = flip ? 0x80 : 0;
  std::int64_t i = 0;
  for (; i + kShorts <= n; i += kShorts) *reinterpret_cast<UnalignedShorts*>(to + i) = load_shorts(from + i, change);
  for (; i < n; ++i) to[i] = static_cast<std::int16_t>(from[i] ^ change);
}

}  // namespace
}  // namespace evn::EVN_ISA
