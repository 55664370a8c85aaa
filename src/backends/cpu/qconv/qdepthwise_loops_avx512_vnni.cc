// The loops of qconv/qdepthwise_loops.h by vpdpbusd, bytes only: 64 channels at once, whose bytes of four taps are brought together
// by interleaving, so that channels stand in another order in the sums (quad_place). Packing the sums to bytes is the way back. By
// planes the bytes are interleaved once, for all taps of a line and two lines.
#include "backends/cpu/qconv/qdepthwise_loops.h"

#include <cstring>

#include "backends/cpu/qgemm/qgemm_store.h"

namespace evn::EVN_ISA {
namespace {

using simd_qdepthwise::Tile;
using simd_qgemm::Output;

constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kFewProducts = 1 << 12;

inline void add_qgemm(__m512i a, __m512i b, __m512i& sum) { __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

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
      add_qgemm(_mm512_unpacklo_epi16(low01, low23), _mm512_loadu_si512(weight), sum[0]);
      add_qgemm(_mm512_unpackhi_epi16(low01, low23), _mm512_loadu_si512(weight + 16), sum[1]);
      add_qgemm(_mm512_unpacklo_epi16(high01, high23), _mm512_loadu_si512(weight + 32), sum[2]);
      add_qgemm(_mm512_unpackhi_epi16(high01, high23), _mm512_loadu_si512(weight + 48), sum[3]);
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
  const std::int64_t work = t.channels * t.groups;            // of a position
  const std::int64_t at_once = work < kFewProducts ? 32 : 1;  // positions between two cancellation points
  for (std::int64_t line = 0; line < t.lines; ++line) {
    const std::uint8_t* const a = t.a + line * t.line_step;
    std::uint8_t* const c = static_cast<std::uint8_t*>(t.c) + line * t.line_c;
    for (std::int64_t x = 0, end = 0; x < t.width;) {
      end = t.width - x < at_once ? t.width : x + at_once;
      if (stops(t.points, (end - x) * work)) return;
      for (; x < end; ++x) run_position(t, range, a + x * t.step, c + x * t.ldc);
    }
  }
}

// ----------------------------------------------------------------------------------------------------------- planes --

using simd_qdepthwise::PlaneTile;

struct Quad {
  const std::uint8_t* line[4];
};

// Four lines of `n` bytes into four planes.
inline void interleave(const Quad& q, std::int64_t n, std::uint8_t flip, std::uint8_t* to, std::int64_t plane) {
  const __m512i change = _mm512_set1_epi8(static_cast<char>(flip));
  for (std::int64_t i = 0; i < n; i += 64) {
    const __mmask64 mask = n - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (n - i)) - 1;
    __m512i v[4];
#pragma GCC unroll 4
    for (int l = 0; l < 4; ++l) v[l] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, q.line[l] + i), change);
    const __m512i low01 = _mm512_unpacklo_epi8(v[0], v[1]), high01 = _mm512_unpackhi_epi8(v[0], v[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(v[2], v[3]), high23 = _mm512_unpackhi_epi8(v[2], v[3]);
    _mm512_storeu_si512(to + i, _mm512_unpacklo_epi16(low01, low23));
    _mm512_storeu_si512(to + plane + i, _mm512_unpackhi_epi16(low01, low23));
    _mm512_storeu_si512(to + 2 * plane + i, _mm512_unpacklo_epi16(high01, high23));
    _mm512_storeu_si512(to + 3 * plane + i, _mm512_unpackhi_epi16(high01, high23));
  }
}

inline void fill_planes(const PlaneTile& t, std::int64_t first, std::int64_t input_lines, int quads) {
  for (int q = 0; q < quads; ++q) {
    Quad lines;
    for (int l = 0; l < 4; ++l) {
      const std::int64_t wanted = 4 * q + l < input_lines ? 4 * q + l : input_lines - 1;  // weights of those beyond are 0
      const std::int64_t y = first + wanted * t.dilation_y;
      lines.line[l] = y < 0 || y >= t.height ? t.pad_line : t.image + y * t.image_line + t.from;
    }
    std::uint8_t* const to = t.planes + 4 * q * t.plane;
    interleave(lines, t.inside, t.flip, to + t.pads_before, t.plane);
    for (int v = 0; v < 4; ++v) {
      if (t.pads_before > 0) std::memset(to + v * t.plane, t.pad, static_cast<std::size_t>(t.pads_before));
      if (t.pads_after > 0) std::memset(to + v * t.plane + t.pads_before + t.inside, t.pad, static_cast<std::size_t>(t.pads_after));
    }
  }
}

// P positions of L lines of one block.
template <int P, int L>
inline void run_block(const PlaneTile& t, int quads, const BytePacking& packing, std::int64_t block, std::int64_t position,
                      std::uint8_t* c, int lines) {
  __m512i sum[P][L][4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512i start = _mm512_loadu_si512(t.start + block * kBlock + 16 * v);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 2
      for (int l = 0; l < L; ++l) sum[p][l][v] = start;
    }
  }
  const std::int8_t* weight = t.weight + block * t.kernel_width * quads * L * 4 * kBlock;
  const std::uint8_t* a = t.planes + position * t.step_in + block * kBlock;
  const std::int64_t plane = t.plane, step = t.step_in;
  for (std::int64_t x = 0; x < t.kernel_width; ++x, a += t.tap) {
    const std::uint8_t* at = a;
    for (int q = 0; q < quads; ++q, weight += L * 4 * kBlock) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v, at += plane) {
        __m512i bytes[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) bytes[p] = _mm512_loadu_si512(at + p * step);
#pragma GCC unroll 2
        for (int l = 0; l < L; ++l) {
          const __m512i w = _mm512_loadu_si512(weight + (4 * l + v) * kBlock);
#pragma GCC unroll 2
          for (int p = 0; p < P; ++p) add_qgemm(bytes[p], w, sum[p][l][v]);
        }
      }
    }
  }
  Vec scale[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) scale[v] = load(t.scale + block * kBlock + 16 * v);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    const std::int64_t at = (position + p) * t.step_out + block * kBlock;
    const std::int64_t in_position = t.valid - block * kBlock, in_line = t.all - at;
    const std::int64_t n = in_position < in_line ? in_position : in_line;
    const __mmask64 mask = n >= kBlock ? ~__mmask64{0} : n <= 0 ? 0 : (__mmask64{1} << n) - 1;
#pragma GCC unroll 2
    for (int l = 0; l < L; ++l) {
      const Vec v0 = float_of(reinterpret_cast<BitVec>(sum[p][l][0])) * scale[0],
                v1 = float_of(reinterpret_cast<BitVec>(sum[p][l][1])) * scale[1];
      const Vec v2 = float_of(reinterpret_cast<BitVec>(sum[p][l][2])) * scale[2],
                v3 = float_of(reinterpret_cast<BitVec>(sum[p][l][3])) * scale[3];
      _mm512_mask_storeu_epi8(c + l * t.line_c + at, l < lines ? mask : 0, packed_in_order(packing, v0, v1, v2, v3));
    }
  }
}

template <int L>
void run_lines(const PlaneTile& t) {
  const int quads = static_cast<int>((t.kernel_lines + L - 1 + 3) / 4);
  const BytePacking packing = byte_packing(t.zero, t.is_signed);
  for (std::int64_t line = 0; line < t.lines; line += L) {
    const int left = static_cast<int>(t.lines - line < L ? t.lines - line : L);
    // Input lines that only an output line beyond the last one needs may not exist yet.
    fill_planes(t, t.first_line + line * t.stride_y, t.kernel_lines + left - 1, quads);
    std::uint8_t* const c = t.c + line * t.line_c;
    for (std::int64_t block = 0; block < t.blocks; ++block) {
      if (stops(t.points, t.positions * kBlock * L * quads * t.kernel_width)) return;
      std::int64_t x = 0;
      for (; x + 2 <= t.positions; x += 2) run_block<2, L>(t, quads, packing, block, x, c, left);
      if (x < t.positions) run_block<1, L>(t, quads, packing, block, x, c, left);
    }
  }
}

void run_planes(const PlaneTile& t) { t.together == 2 ? run_lines<2>(t) : run_lines<1>(t); }

}  // namespace

extern const simd_qdepthwise::Loops loops_qdepthwise;
const simd_qdepthwise::Loops loops_qdepthwise = {4, run, run_planes};

}  // namespace evn::EVN_ISA
