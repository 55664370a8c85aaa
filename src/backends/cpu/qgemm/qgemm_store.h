// Vectors of whole numbers, and how sums become bytes: what loops over bytes of a cluster share. Included by simd/qgemm*.cc and
// elementwise/bytes_loops.cc only.
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

// kLanes bytes as whole numbers.
template <bool Signed>
inline IntVec load_steps(const std::uint8_t* p) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p));
  return reinterpret_cast<IntVec>(Signed ? _mm512_maskz_cvtepi8_epi32(kAllLanes, bytes)
                                         : _mm512_maskz_cvtepu8_epi32(kAllLanes, bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p));
  return reinterpret_cast<IntVec>(Signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
  IntVec v;
  for (int i = 0; i < kLanes; ++i) v[i] = Signed ? static_cast<std::int8_t>(p[i]) : p[i];
  return v;
#endif
}

#if defined(__AVX512F__)
template <bool Signed>
inline IntVec load_steps_n(const std::uint8_t* p, std::int64_t n) {
  const __m128i part = _mm_maskz_loadu_epi8(mask_of(n), p);
  return reinterpret_cast<IntVec>(Signed ? _mm512_maskz_cvtepi8_epi32(kAllLanes, part)
                                         : _mm512_maskz_cvtepu8_epi32(kAllLanes, part));
}
#else
template <bool Signed>
__attribute__((noinline)) IntVec load_steps_n(const std::uint8_t* p, std::int64_t n) {
  std::uint8_t bytes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) bytes[i] = p[i];
  return load_steps<Signed>(bytes);
}
#endif
template <bool Signed>
inline IntVec load_some_steps(const std::uint8_t* p, std::int64_t n) {
  return n == kLanes ? load_steps<Signed>(p) : load_steps_n<Signed>(p, n);
}

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
  return {splat(static_cast<float>(least - zero)), splat(static_cast<float>(most - zero)),
          splat_bits(static_cast<std::uint32_t>(zero))};
}
inline BitVec saturated(const ByteRange& range, Vec x) {
  return round_to_whole(min_of(range.high, max_of(x, range.low))) + range.zero;
}

#if defined(__AVX512F__) || defined(__AVX2__)
#define EVN_PACKS_BYTES 1
// Four vectors at once: packing saturates, so that bounds need not be looked at. Two of each of two rows; the first row comes to
// lie in the low half of the result.
#if defined(__AVX512F__)
typedef __m512i Packed;
typedef __m256i PackedRow;
#else
typedef __m256i Packed;
typedef __m128i PackedRow;
#endif

// x rounded to even; 2^31 and more becomes something just below, NaN and what is too small the least int32. Bounded: nothing is so
// large.
template <bool Bounded>
inline Packed rounded(Vec x) {
#if defined(__AVX512F__)
  __m512 bounded = reinterpret_cast<__m512>(x);
  if (!Bounded) bounded = _mm512_maskz_min_ps(kAllLanes, _mm512_set1_ps(2147483520.0f), bounded);  // NaN gives the second
  return _mm512_maskz_cvt_roundps_epi32(kAllLanes, bounded, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const __m256 any = reinterpret_cast<__m256>(x);
  return _mm256_cvtps_epi32(Bounded ? any : _mm256_min_ps(_mm256_set1_ps(2147483520.0f), any));
#endif
}

struct BytePacking {
  Packed zero;  // as int16
  bool is_signed;
};
inline BytePacking byte_packing(std::int32_t zero, bool is_signed) {
#if defined(__AVX512F__)
  return {_mm512_set1_epi16(static_cast<std::int16_t>(zero)), is_signed};
#else
  return {_mm256_set1_epi16(static_cast<std::int16_t>(zero)), is_signed};
#endif
}

// Parts of 16 bytes have four bytes of each vector.
template <bool Bounded = false>
inline Packed packed_in_order(const BytePacking& p, Vec v0, Vec v1, Vec v2, Vec v3) {
#if defined(__AVX512F__)
  const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(rounded<Bounded>(v0), rounded<Bounded>(v1)), p.zero);
  const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(rounded<Bounded>(v2), rounded<Bounded>(v3)), p.zero);
  return p.is_signed ? _mm512_packs_epi16(a, b) : _mm512_packus_epi16(a, b);
#else
  const __m256i a = _mm256_adds_epi16(_mm256_packs_epi32(rounded<Bounded>(v0), rounded<Bounded>(v1)), p.zero);
  const __m256i b = _mm256_adds_epi16(_mm256_packs_epi32(rounded<Bounded>(v2), rounded<Bounded>(v3)), p.zero);
  return p.is_signed ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
#endif
}

template <bool Bounded = false>
inline Packed packed_rows(const BytePacking& p, Vec a0, Vec a1, Vec b0, Vec b1) {
  const Packed bytes = packed_in_order<Bounded>(p, a0, a1, b0, b1);
#if defined(__AVX512F__)
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_maskz_permutexvar_epi32(kAllLanes, order, bytes);
#else
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
#endif
}

inline PackedRow first_row(Packed p) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(p, p, 0, 1, 2, 3);
#else
  return _mm256_castsi256_si128(p);
#endif
}
inline PackedRow second_row(Packed p) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(p, p, 4, 5, 6, 7);
#else
  return _mm256_extracti128_si256(p, 1);
#endif
}

#if !defined(__AVX512F__)
__attribute__((noinline, unused)) void store_part(std::uint8_t* p, PackedRow v, std::int64_t n) {
  std::uint8_t bytes[2 * kLanes];
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(bytes), v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = bytes[i];
}
#endif

// The first n bytes.
inline void store_row(std::uint8_t* p, PackedRow v, std::int64_t n) {
#if defined(__AVX512F__)
  if (n == 2 * kLanes) return _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), v);
  _mm256_mask_storeu_epi8(p, static_cast<__mmask32>((std::uint64_t{1} << n) - 1), v);
#else
  n == 2 * kLanes ? _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), v) : store_part(p, v, n);
#endif
}
#endif

}  // namespace
}  // namespace evn::EVN_ISA
