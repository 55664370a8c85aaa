// The loops of simd/dot_depthwise.h by vpdpbusd, bytes only: 64 channels at once, whose bytes of four taps are brought together by
// interleaving, so that channels stand in another order in the sums (quad_place). Packing the sums to bytes is the way back.
#include "backends/cpu/simd/dot_depthwise.h"

#include "backends/cpu/simd/dot_store.h"

namespace evn::EVN_ISA {
namespace {

using simd_dot_depthwise::Tile;
using simd_dot::Output;

constexpr std::int64_t kBlock = 64;

inline void add_dot(__m512i a, __m512i b, __m512i& sum) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

inline __m512i requantized(const ByteRange& range, __m512i sum, const float* scale) {
  return reinterpret_cast<__m512i>(saturated(range, float_of(reinterpret_cast<BitVec>(sum)) * load(scale)));
}

inline void run_position(const Tile& t, const ByteRange& range, const std::uint8_t* a, std::uint8_t* c) {
  for (std::int64_t channel = 0; channel < t.channels; channel += kBlock) {
    __m512i sum[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[v] = _mm512_loadu_si512(t.start + channel + 16 * v);
    const std::int32_t* weight = t.weight + channel;
    for (std::int64_t quad = 0; quad < t.groups; ++quad, weight += t.weight_step) {
      __m512i tap[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) tap[i] = _mm512_loadu_si512(a + t.offsets[4 * quad + i] + channel);
      const __m512i low01 = _mm512_unpacklo_epi8(tap[0], tap[1]), high01 = _mm512_unpackhi_epi8(tap[0], tap[1]);
      const __m512i low23 = _mm512_unpacklo_epi8(tap[2], tap[3]), high23 = _mm512_unpackhi_epi8(tap[2], tap[3]);
      add_dot(_mm512_unpacklo_epi16(low01, low23), _mm512_loadu_si512(weight), sum[0]);
      add_dot(_mm512_unpackhi_epi16(low01, low23), _mm512_loadu_si512(weight + 16), sum[1]);
      add_dot(_mm512_unpacklo_epi16(high01, high23), _mm512_loadu_si512(weight + 32), sum[2]);
      add_dot(_mm512_unpackhi_epi16(high01, high23), _mm512_loadu_si512(weight + 48), sum[3]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) sum[v] = requantized(range, sum[v], t.scale + channel + 16 * v);
    const __m512i first = _mm512_packs_epi32(sum[0], sum[1]), second = _mm512_packs_epi32(sum[2], sum[3]);
    const __m512i bytes = t.output == Output::kInt8 ? _mm512_packs_epi16(first, second) : _mm512_packus_epi16(first, second);
    const std::int64_t left = t.channels - channel;
    if (left >= kBlock) {
      _mm512_storeu_si512(c + channel, bytes);
    } else {
      _mm512_mask_storeu_epi8(c + channel, (__mmask64{1} << left) - 1, bytes);
    }
  }
}

void run(const Tile& t) {
  const bool is_signed = t.output == Output::kInt8;
  const ByteRange range = byte_range(is_signed ? -128 : 0, is_signed ? 127 : 255, t.zero);
  for (std::int64_t line = 0; line < t.lines; ++line) {
    const std::uint8_t* const a = t.a + line * t.line_step;
    std::uint8_t* const c = static_cast<std::uint8_t*>(t.c) + line * t.line_c;
    for (std::int64_t x = 0; x < t.width; ++x) run_position(t, range, a + x * t.step, c + x * t.ldc);
  }
}

}  // namespace

extern const simd_dot_depthwise::Loops loops_dot_depthwise;
const simd_dot_depthwise::Loops loops_dot_depthwise = {4, run};

}  // namespace evn::EVN_ISA
