// Vectors of whole numbers, and how sums become bytes: what loops over bytes of a cluster share. Included by simd/dot*.cc only.
#pragma once

#include <cstring>

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

typedef BitVec UnalignedBits __attribute__((aligned(4), may_alias));

inline BitVec load_bits(const void* p) { return *static_cast<const UnalignedBits*>(p); }
inline void store_bits(void* p, BitVec v) { *static_cast<UnalignedBits*>(p) = v; }
inline BitVec splat_bits(std::uint32_t x) { return x - BitVec{}; }

#if defined(__x86_64__)
// Products of numbers of 16 bits, two at a time.
#if defined(__AVX512F__)
inline BitVec add_pairs(BitVec a, BitVec b) {
  return reinterpret_cast<BitVec>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
#elif defined(__AVX2__)
inline BitVec add_pairs(BitVec a, BitVec b) {
  return reinterpret_cast<BitVec>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
#else
inline BitVec add_pairs(BitVec a, BitVec b) {
  return reinterpret_cast<BitVec>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
}
#endif
#endif

// The low bytes of the first n lanes.
inline void store_bytes(std::uint8_t* p, BitVec v, std::int64_t n) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(kAllLanes, reinterpret_cast<__m512i>(v));
  if (n == kLanes) return _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), bytes);
  _mm_mask_storeu_epi8(p, mask_of(n), bytes);
#else
  std::uint8_t bytes[kLanes];
  v &= 0xffu;
#if defined(__AVX2__)
  const __m256i whole = reinterpret_cast<__m256i>(v);
  const __m256i words = _mm256_packs_epi32(whole, whole);
  const __m256i packed = _mm256_packus_epi16(words, words);
  const std::int32_t halves[2] = {_mm256_extract_epi32(packed, 0), _mm256_extract_epi32(packed, 4)};
  std::memcpy(bytes, halves, sizeof bytes);
#elif defined(__x86_64__)
  const __m128i whole = reinterpret_cast<__m128i>(v);
  const __m128i words = _mm_packs_epi32(whole, whole);
  const std::int32_t packed = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  std::memcpy(bytes, &packed, sizeof bytes);
#else
  for (int i = 0; i < kLanes; ++i) bytes[i] = static_cast<std::uint8_t>(v[i]);
#endif
  if (n == kLanes) {
    std::memcpy(p, bytes, sizeof bytes);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) p[i] = bytes[i];
#endif
}

inline Vec float_of(BitVec v) { return __builtin_convertvector(reinterpret_cast<IntVec>(v), Vec); }

// x, rounded to even, as a whole number of at most 22 bits.
inline BitVec round_to_whole(Vec x) {
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23
  return reinterpret_cast<BitVec>(x + magic) - reinterpret_cast<BitVec>(magic);
}

// Bytes: the bounds of the type, less the zero point. NaN becomes the lower one.
struct ByteRange {
  Vec low, high;
  BitVec zero;
};
inline ByteRange byte_range(std::int32_t least, std::int32_t most, std::int32_t zero) {
  return {splat(static_cast<float>(least - zero)), splat(static_cast<float>(most - zero)), splat_bits(static_cast<std::uint32_t>(zero))};
}
inline BitVec saturated(const ByteRange& range, Vec x) {
  return round_to_whole(min_of(range.high, max_of(x, range.low))) + range.zero;
}

}  // namespace
}  // namespace evn::EVN_ISA
