#include "backends/cpu/qgemm/interleave.h"

#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace evn {

void interleave_columns(const std::uint8_t* const (&columns)[kInterleaved], std::int64_t units, std::int64_t step,
                        std::uint8_t* to) {
  constexpr std::int64_t kUnit = 4;
  std::int64_t i = 0;
#if defined(__x86_64__)
  for (; i + 4 <= units; i += 4) {
    __m128i v[kInterleaved];
    for (int c = 0; c < kInterleaved; ++c) {
      v[c] =
          columns[c] == nullptr ? _mm_setzero_si128() : _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(columns[c] + i * kUnit));
    }
    const __m128i low = _mm_unpacklo_epi32(v[0], v[1]), other_low = _mm_unpacklo_epi32(v[2], v[3]);
    const __m128i high = _mm_unpackhi_epi32(v[0], v[1]), other_high = _mm_unpackhi_epi32(v[2], v[3]);
    std::uint8_t* const at = to + i * step;
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at), _mm_unpacklo_epi64(low, other_low));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at + step), _mm_unpackhi_epi64(low, other_low));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at + 2 * step), _mm_unpacklo_epi64(high, other_high));
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(at + 3 * step), _mm_unpackhi_epi64(high, other_high));
  }
#endif
  for (; i < units; ++i) {
    for (int c = 0; c < kInterleaved; ++c) {
      if (columns[c] == nullptr) {
        std::memset(to + i * step + c * kUnit, 0, kUnit);
      } else {
        std::memcpy(to + i * step + c * kUnit, columns[c] + i * kUnit, kUnit);
      }
    }
  }
}

std::uint32_t flip_and_sum(std::uint8_t* bytes, std::int64_t n, bool flip) {
  // As int8 a byte b is (b ^ 0x80) - 128; what is flipped is b - 128.
  const unsigned change = flip ? 0x80 : 0, counted = flip ? 0 : 0x80;
  std::uint32_t sum = 0;
  std::int64_t i = 0;
#if defined(__x86_64__)
  const __m128i changes = _mm_set1_epi8(static_cast<char>(change)), counts = _mm_set1_epi8(static_cast<char>(counted));
  __m128i sums = _mm_setzero_si128();
  for (; i + 16 <= n; i += 16) {
    auto* const at = reinterpret_cast<__m128i_u*>(bytes + i);
    const __m128i v = _mm_loadu_si128(at);
    sums = _mm_add_epi64(sums, _mm_sad_epu8(_mm_xor_si128(v, counts), _mm_setzero_si128()));
    _mm_storeu_si128(at, _mm_xor_si128(v, changes));
  }
  sum =
      static_cast<std::uint32_t>(_mm_cvtsi128_si32(sums)) + static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_srli_si128(sums, 8)));
#endif
  for (; i < n; ++i) {
    sum += bytes[i] ^ counted;
    bytes[i] = static_cast<std::uint8_t>(bytes[i] ^ change);
  }
  return sum - 128 * static_cast<std::uint32_t>(n);
}

}  // namespace evn
