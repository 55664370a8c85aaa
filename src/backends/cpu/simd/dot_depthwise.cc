// The loops of simd/dot_depthwise.h for one cluster: products of 16 bits, two taps at a time, at kPositions positions of a line.
#include "backends/cpu/simd/dot_depthwise.h"

#include "backends/cpu/simd/dot_store.h"

namespace evn::EVN_ISA {
namespace {

using simd_dot_depthwise::Tile;
using simd_dot::Output;

constexpr int kPositions = 4;

inline BitVec widened(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<BitVec>(_mm512_maskz_cvtepu8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<BitVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))));
#else
  BitVec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}

#if !defined(__x86_64__)
inline BitVec add_pairs(BitVec a, BitVec b) {
  const BitVec low = (a & 0xffffu) * reinterpret_cast<BitVec>(reinterpret_cast<IntVec>(b << 16) >> 16);
  return low + (a >> 16) * reinterpret_cast<BitVec>(reinterpret_cast<IntVec>(b) >> 16);
}
#endif

// Sums of P positions, `step` apart, of the channels from `channel` on.
template <int P>
inline void sum_taps(const Tile& t, const std::uint8_t* a, std::int64_t channel, BitVec (&acc)[P]) {
  const BitVec start = load_bits(t.start + channel);
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) acc[p] = start;
  const std::int32_t* weight = t.weight + channel;
  for (std::int64_t pair = 0; pair < t.groups; ++pair, weight += t.weight_step) {
    const BitVec w = load_bits(weight);
    const std::uint8_t* const first = a + t.offsets[2 * pair] + channel;
    const std::uint8_t* const second = a + t.offsets[2 * pair + 1] + channel;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) acc[p] += add_pairs(widened(first + p * t.step) | widened(second + p * t.step) << 16, w);
  }
}

template <int P>
void run_positions(const Tile& t, const ByteRange& range, const std::uint8_t* a, std::int64_t at) {
  for (std::int64_t channel = 0; channel < t.channels; channel += kLanes) {
    const std::int64_t left = t.channels - channel, n = left < kLanes ? left : kLanes;
    BitVec acc[P];
    sum_taps<P>(t, a, channel, acc);
    if (t.output == Output::kInt32) {
      float* const c = static_cast<float*>(t.c) + at + channel;  // stores of whole vectors are the same
      for (int p = 0; p < P; ++p) store_n(c + p * t.ldc, reinterpret_cast<Vec>(acc[p]), n);
    } else {
      const Vec scale = load(t.scale + channel);
      std::uint8_t* const c = static_cast<std::uint8_t*>(t.c) + at + channel;
      for (int p = 0; p < P; ++p) store_bytes(c + p * t.ldc, saturated(range, float_of(acc[p]) * scale), n);
    }
  }
}

void run(const Tile& t) {
  const bool is_signed = t.output == Output::kInt8;
  const ByteRange range = byte_range(is_signed ? -128 : 0, is_signed ? 127 : 255, t.zero);
  for (std::int64_t line = 0; line < t.lines; ++line) {
    const std::uint8_t* const a = t.a + line * t.line_step;
    const std::int64_t at = line * t.line_c;
    std::int64_t x = 0;
    for (; x + kPositions <= t.width; x += kPositions) run_positions<kPositions>(t, range, a + x * t.step, at + x * t.ldc);
    for (; x < t.width; ++x) run_positions<1>(t, range, a + x * t.step, at + x * t.ldc);
  }
}

}  // namespace

extern const simd_dot_depthwise::Loops loops_dot_depthwise;
const simd_dot_depthwise::Loops loops_dot_depthwise = {2, run, nullptr};

}  // namespace evn::EVN_ISA
