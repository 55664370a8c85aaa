// The loops of qconv/qdepthwise_loops.h for one cluster, kPositions positions of a line at once: products of floats, one
// instruction each, or of 16 bits, two taps at a time.
#include "backends/cpu/qconv/qdepthwise_loops.h"

#include "backends/cpu/qgemm/qgemm_store.h"

namespace evn::EVN_ISA {
namespace {

using simd_qdepthwise::Tile;
using simd_qgemm::Output;

bool is_byte(Output output) { return output == Output::kInt8 || output == Output::kUint8; }

// n sums, as they are or as floats.
inline void store_words(const Tile& t, BitVec sums, std::int64_t channel, float* c, std::int64_t n) {
  Vec y = reinterpret_cast<Vec>(sums);  // stores of whole vectors are the same
  if (t.output == Output::kFloat) {
    y = float_of(sums) * load(t.scale + channel);
    if (t.bias != nullptr) y += load(t.bias + channel);
  }
  store_n(c, y, n);
}

#if defined(EVN_PACKS_BYTES)
constexpr int kGroup = 1;
constexpr int kPositions = 7;                     // whole lines of most networks' images
constexpr std::int64_t kStored = 4 * kPositions;  // at once: what their channels need is loaded for all of them

inline Vec widened(const std::uint8_t* p) {
#if defined(__AVX512F__)
  const __m512i v = _mm512_maskz_cvtepu8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(p)));
#else
  const __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p)));
#endif
  return float_of(reinterpret_cast<BitVec>(v));
}

// Sums of P positions as floats, which are whole numbers below 2^24 and therefore exact: each pixel of a line is widened once for
// the K taps that see it, where positions are S pixels apart. K 1: any taps.
template <int P, int K, int S>
void sum_taps(const Tile& t, const std::uint8_t* a, std::int64_t channel, std::int32_t* sums) {
  const float* weight = reinterpret_cast<const float*>(t.weight) + channel;
  const std::int64_t pixel = K == 1 ? t.step : t.pixel;
  const Vec start = t.float_start == nullptr ? zero() : load(t.float_start + channel);
  Vec acc[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) acc[p] = start;
  for (std::int64_t tap = 0; tap < t.groups; tap += K, weight += K * t.weight_step) {
    const std::uint8_t* const from = a + t.offsets[tap] + channel;
    Vec w[K];
#pragma GCC unroll 5
    for (int k = 0; k < K; ++k) w[k] = load(weight + k * t.weight_step);
#pragma GCC unroll 16
    for (int j = 0; j < (P - 1) * S + K; ++j) {
      const Vec v = widened(from + j * pixel);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        if (j >= p * S && j < p * S + K) acc[p] = fma(v, w[j - p * S], acc[p]);
      }
    }
  }
  if (t.float_start != nullptr) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) store_bits(sums + p * 2 * kLanes, reinterpret_cast<BitVec>(acc[p]));
    return;
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) store_bits(sums + p * 2 * kLanes, reinterpret_cast<BitVec>(__builtin_convertvector(acc[p], IntVec)));
}

using SumTaps = void (*)(const Tile&, const std::uint8_t*, std::int64_t, std::int32_t*);
#define EVN_SUM_TAPS(K, S) \
  { sum_taps<1, K, S>, sum_taps<kPositions, K, S> }
constexpr SumTaps kSumTaps[][2] = {EVN_SUM_TAPS(1, 1), EVN_SUM_TAPS(3, 1), EVN_SUM_TAPS(3, 2), EVN_SUM_TAPS(5, 1)};
#undef EVN_SUM_TAPS

int form_of(const Tile& t) {
  if (t.run == 3 && t.step == t.pixel) return 1;
  if (t.run == 3 && t.step == 2 * t.pixel) return 2;
  return t.run == 5 && t.step == t.pixel ? 3 : 0;
}

// Sums of positions of two vectors of channels.
void store_positions(const Tile& t, const std::int32_t* sums, std::int64_t positions, std::int64_t at, std::int64_t channel) {
  const std::int64_t left = t.channels - channel, n = left < 2 * kLanes ? left : 2 * kLanes;
  const std::int64_t second = left > kLanes ? kLanes : 0;
  const BitVec start0 = load_bits(t.start + channel), start1 = load_bits(t.start + channel + second);
  if (!is_byte(t.output)) {
    float* const c = static_cast<float*>(t.c) + at + channel;
    for (std::int64_t p = 0; p < positions; ++p) {
      store_words(t, load_bits(sums + p * 2 * kLanes) + start0, channel, c + p * t.ldc, n < kLanes ? n : kLanes);
      if (second != 0)
        store_words(t, load_bits(sums + p * 2 * kLanes + kLanes) + start1, channel + kLanes, c + p * t.ldc + kLanes, n - kLanes);
    }
    return;
  }
  const Vec scale0 = load(t.scale + channel), scale1 = load(t.scale + channel + second);
  const BytePacking packing = byte_packing(t.zero, t.output == Output::kInt8);
  std::uint8_t* c = static_cast<std::uint8_t*>(t.c) + at + channel;
  const auto store = [&](auto&& scaled) __attribute__((always_inline)) {
    for (std::int64_t p = 0; p < positions; p += 2, sums += 4 * kLanes, c += 2 * t.ldc) {
      const std::int64_t other = p + 1 < positions ? 1 : 0;
      const std::int32_t* const b = sums + other * 2 * kLanes;
      const Packed bytes = packed_rows<false>(packing, scaled(sums, start0, scale0), scaled(sums + second, start1, scale1),
                                              scaled(b, start0, scale0), scaled(b + second, start1, scale1));
      store_row(c, first_row(bytes), n);
      store_row(c + other * t.ldc, second_row(bytes), n);
    }
  };
  if (t.float_start != nullptr) {
    store([](const std::int32_t* sum, BitVec, Vec scale) { return reinterpret_cast<Vec>(load_bits(sum)) * scale; });
  } else {
    store([](const std::int32_t* sum, BitVec start, Vec scale) { return float_of(load_bits(sum) + start) * scale; });
  }
}

void run(const Tile& t) {
  alignas(64) std::int32_t sums[kStored * 2 * kLanes];
  const bool many = t.width >= kPositions;
  const SumTaps sum = kSumTaps[form_of(t)][many];
  const std::int64_t together = many ? kPositions : 1;
  for (std::int64_t line = 0; line < t.lines; ++line) {
    for (std::int64_t next = 0; next < t.width;) {
      // The last ones of a line begin earlier and are computed again.
      const std::int64_t end = t.width - next < kStored ? t.width : next + kStored;
      const std::int64_t begin = many && end - next < kPositions ? end - kPositions : next;
      const std::uint8_t* const a = t.a + line * t.line_step;
      for (std::int64_t channel = 0; channel < t.channels; channel += 2 * kLanes) {
        if (stops(t.points, (end - begin) * 2 * kLanes * t.groups)) return;
        for (std::int64_t x = begin; x < end; x += together) {
          const std::int64_t from = end - x < together ? end - together : x;
          std::int32_t* const to = sums + (from - begin) * 2 * kLanes;
          sum(t, a + from * t.step, channel, to);
          if (t.channels - channel > kLanes) sum(t, a + from * t.step, channel + kLanes, to + kLanes);
        }
        store_positions(t, sums, end - begin, line * t.line_c + begin * t.ldc, channel);
      }
      next = end;
    }
  }
}
#else
constexpr int kGroup = 2;
constexpr int kPositions = 4;

inline BitVec widened(const std::uint8_t* p) {
  BitVec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
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
    if (stops(t.points, P * kLanes * t.groups * kGroup)) return;
    BitVec acc[P];
    sum_taps<P>(t, a, channel, acc);
    if (!is_byte(t.output)) {
      for (int p = 0; p < P; ++p) store_words(t, acc[p], channel, static_cast<float*>(t.c) + at + channel + p * t.ldc, n);
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
#endif

}  // namespace

extern const simd_qdepthwise::Loops loops_qdepthwise;
const simd_qdepthwise::Loops loops_qdepthwise = {kGroup, run, nullptr};

}  // namespace evn::EVN_ISA
