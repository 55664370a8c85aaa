// The micro-kernel of int8 products: rows of A by vectors of columns of B, k in fours (k4 interleave), by vpdpbusd or sdot where
// there is one, or in eights by usmmla, else by products of 16 bits: pmaddubsw would saturate. Included by qgemm_tile.h only.
#pragma once

#include <cstring>
#include <iterator>
#include <type_traits>

#include "backends/cpu/qgemm/qgemm_loops.h"
#include "backends/cpu/qgemm/qgemm_store.h"

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define EVN_DOT_WORDS 1
#include "backends/cpu/qconv/qwinograd_int16.h"
#endif
#if defined(__ARM_FEATURE_DOTPROD)
#define EVN_DOT_NEON 1
#include "backends/cpu/qgemm/qgemm_neon.h"
#endif

namespace evn::EVN_ISA {
namespace {

#if !defined(EVN_DOT_NEON)
constexpr int kGroup = 4;  // k that are multiplied together
template <int R>
inline constexpr int kSumRows = R;  // accumulators that R rows of sums take
template <int R, int NV>
inline void exchange_halves(BitVec (&)[R][NV]) {}
#endif

using simd_qgemm::Output;
using simd_qgemm::Tile;

#if defined(__AMX_INT8__)
constexpr int kQgemmMr = 4, kQgemmNv = 4;  // for few rows only
#elif defined(__AVX512VNNI__)
constexpr int kQgemmMr = 6, kQgemmNv = 4;
#elif defined(__AVX512F__)
constexpr int kQgemmMr = 1, kQgemmNv = 4;  // others are widened before
#elif defined(__AVXVNNI__)
constexpr int kQgemmMr = 6, kQgemmNv = 2;
#elif defined(__AVX2__)
constexpr int kQgemmMr = 1, kQgemmNv = 2;
#elif defined(EVN_DOT_NEON)
constexpr int kQgemmMr = 8, kQgemmNv = 2;
#else
constexpr int kQgemmMr = 4, kQgemmNv = 2;
#endif
constexpr std::int64_t kQgemmColumns = kQgemmNv * kLanes;
constexpr std::int64_t kGroupBytes = kGroup * kLanes;  // of one group of k of a block of B

// Multiply-adds of bytes that are a unit of work.
#if defined(__AVX512VNNI__)
constexpr std::int64_t kQgemmsPerUnit = 8;
#elif defined(__AVXVNNI__) || defined(__ARM_FEATURE_MATMUL_INT8)
constexpr std::int64_t kQgemmsPerUnit = 4;
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr std::int64_t kQgemmsPerUnit = 2;
#else
constexpr std::int64_t kQgemmsPerUnit = 1;
#endif
constexpr std::int64_t kMostGroups = 4096 * 4 / kGroup;  // of k between two cancellation points

inline BitVec quad_of(const std::uint8_t* p) {
  std::uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return splat_bits(bits);
}

// A group of each of R rows of A by one of NV blocks of B, added to acc.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
// In the sum's own register: the compiler may otherwise copy sums around.
inline void add_qgemm(BitVec a, BitVec b, BitVec& sum) {
#if defined(__AVX512VNNI__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#endif
}

template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  BitVec bv[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) bv[v] = load_bits(b + v * block);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const BitVec x = quad_of(rows[r] + at);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) add_qgemm(x, bv[v], acc[r][v]);
  }
}
#elif defined(EVN_DOT_NEON)
// In qgemm_neon.h.
#elif defined(__x86_64__)
// Products of 16 bits, two at a time: at most 2 x 255 x 128. Where sums begin with what is added to them, B lies in pairs of k;
// else in quads, whose bytes of even and of odd number are taken.
#if defined(EVN_DOT_WORDS)
template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  static_assert(R == 1);
  std::uint32_t bits;
  std::memcpy(&bits, rows[0] + at, sizeof bits);
  const BitVec low = splat_bits((bits & 0xffu) | (bits & 0xff00u) << 8),
               high = splat_bits((bits >> 16 & 0xffu) | (bits >> 24) << 16);
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v)
    acc[0][v] += add_pairs(low, load_pairs(b + v * block)) + add_pairs(high, load_pairs(b + v * block + 2 * kLanes));
}
#else
typedef std::int16_t ShortVec __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t ShortBits __attribute__((vector_size(4 * kLanes)));

template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  BitVec even[NV], odd[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    const BitVec both = load_bits(b + v * block);
    even[v] = reinterpret_cast<BitVec>(reinterpret_cast<ShortVec>(reinterpret_cast<ShortBits>(both) << 8) >> 8);
    odd[v] = reinterpret_cast<BitVec>(reinterpret_cast<ShortVec>(both) >> 8);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const BitVec both = quad_of(rows[r] + at);
    const BitVec x_even = both & 0x00ff00ffu;
    const BitVec x_odd = (both >> 8) & 0x00ff00ffu;
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[r][v] += add_pairs(x_even, even[v]) + add_pairs(x_odd, odd[v]);
  }
}
#endif
#else
template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  for (int v = 0; v < NV; ++v) {
    const BitVec four = load_bits(b + v * block);
    for (int i = 0; i < 4; ++i) {
      const BitVec one = reinterpret_cast<BitVec>(reinterpret_cast<IntVec>(four << (24 - 8 * i)) >> 24);
      for (int r = 0; r < R; ++r) acc[r][v] += one * splat_bits(rows[r][at + i]);
    }
  }
}
#endif

// Whether sums begin with Tile::start, which is added to them elsewhere as they are stored.
#if defined(EVN_DOT_WORDS)
constexpr bool kStarted = true;
#else
constexpr bool kStarted = false;
#endif

struct QgemmMicro {
  const Tile* tile;
  const std::uint8_t* a;
  const std::int8_t* b;
  const std::int32_t* start;
  std::int32_t* sums;                                               // rows of kQgemmColumns
  std::int64_t segment_begin, segment_end, group_begin, group_end;  // the range of k: segments, and groups within each
  bool goes_on;                                                     // accumulators start from `sums`, for k in several calls
};

template <int R, int NV>
void qgemm_micro(const QgemmMicro& g) {
  const Tile& t = *g.tile;
  const std::int64_t block = t.segments * t.padded * kLanes, group_begin = g.group_begin, group_end = g.group_end;
  BitVec acc[kSumRows<R>][NV] = {};
  for (int v = 0; kStarted && v < NV; ++v) acc[0][v] = load_bits(g.start + v * kLanes);  // of one row
  if (g.goes_on) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[r][v] = load_bits(g.sums + r * kQgemmColumns + v * kLanes);
    }
    exchange_halves(acc);
  }
  const std::int8_t* b = g.b + g.segment_begin * t.padded * kLanes;
  for (std::int64_t s = g.segment_begin; s < g.segment_end; ++s, b += t.padded * kLanes) {
    const std::uint8_t* rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = g.a + r * t.lda + t.offsets[s];
    const std::int8_t* at = b + group_begin * kGroupBytes;
    std::int64_t q = group_begin;
#if defined(EVN_DOT_LANES)
    for (; q + 4 <= group_end; q += 4, at += 4 * kGroupBytes) multiply_four(rows, kGroup * q, at, block, acc);
#endif
#pragma GCC unroll 2
    for (; q < group_end; ++q, at += kGroupBytes) multiply_group(rows, kGroup * q, at, block, acc);
  }
  exchange_halves(acc);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store_bits(g.sums + r * kQgemmColumns + v * kLanes, acc[r][v]);
  }
}

// By rows and how many vectors of columns there are. Those of vpdpbusd wait for their sums where these are few.
using QgemmMicroFn = void (*)(const QgemmMicro&);
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
#define EVN_DOT_ROW(R) \
  { qgemm_micro<R, 1>, qgemm_micro<R, 2>, qgemm_micro<R, kQgemmNv> }
#define EVN_DOT_FEW(R) \
  { qgemm_micro<R, 1>, nullptr, qgemm_micro<R, kQgemmNv> }
constexpr int kQgemmWidths[] = {1, 2, kQgemmNv};
constexpr std::int64_t kLeastOfTwo = 3;  // rows of a line that two vectors are for: then none are fewer
#else
#define EVN_DOT_ROW(R) \
  { qgemm_micro<R, 1>, qgemm_micro<R, kQgemmNv> }
#define EVN_DOT_FEW EVN_DOT_ROW
constexpr int kQgemmWidths[] = {1, kQgemmNv};
constexpr std::int64_t kLeastOfTwo = 0;
#endif
constexpr int kWidest = static_cast<int>(std::size(kQgemmWidths)) - 1;
constexpr QgemmMicroFn kQgemmMicros[kQgemmMr][kWidest + 1] = {
    EVN_DOT_FEW(1),
#if !defined(EVN_DOT_WORDS)
    EVN_DOT_FEW(2), EVN_DOT_ROW(3), EVN_DOT_ROW(4),
#endif
#if (defined(__AVX512VNNI__) || defined(__AVXVNNI__)) && !defined(__AMX_INT8__)
    EVN_DOT_ROW(5), EVN_DOT_ROW(6),
#elif defined(EVN_DOT_NEON)
    EVN_DOT_ROW(5), EVN_DOT_ROW(6), EVN_DOT_ROW(7), EVN_DOT_ROW(8),
#endif
};
#undef EVN_DOT_ROW
#undef EVN_DOT_FEW

// Multiplies over all of k; long k is split into several calls of the micro-kernel. Returns false if the run is to stop.
inline bool multiply_rows(std::int64_t rows, int width, QgemmMicro& g) {
  const Tile& t = *g.tile;
  const QgemmMicroFn micro = kQgemmMicros[rows - 1][width];
  const std::int64_t groups = (t.segment + kGroup - 1) / kGroup, columns = kQgemmWidths[width] * kLanes;
  g.segment_begin = g.group_begin = 0;
  g.segment_end = t.segments;
  g.group_end = groups;
  if (t.segments * groups <= kMostGroups + kMostGroups / 2) {
    if (stops(t.points, rows * columns * t.segments * groups * kGroup / kQgemmsPerUnit)) return false;
    micro(g);
    return true;
  }
  for (; g.segment_begin < t.segments; ++g.segment_begin) {
    g.segment_end = g.segment_begin + 1;
    for (g.group_begin = 0; g.group_begin < groups; g.group_begin = g.group_end) {
      g.group_end = groups - g.group_begin < kMostGroups + kMostGroups / 2 ? groups : g.group_begin + kMostGroups;
      if (stops(t.points, rows * columns * (g.group_end - g.group_begin) * kGroup / kQgemmsPerUnit)) return false;
      micro(g);
      g.goes_on = true;
    }
  }
  return true;
}

}  // namespace
}  // namespace evn::EVN_ISA
