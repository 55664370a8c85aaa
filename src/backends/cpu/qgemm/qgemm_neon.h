// The products of qgemm_micro.h by ARM's instructions for bytes: usmmla, which multiplies eight k of two rows by those of two
// columns, or sdot, which multiplies four k of a row by those of four columns. Included by qgemm_micro.h only.
#pragma once

#include "backends/cpu/qgemm/qgemm_store.h"

namespace evn::EVN_ISA {
namespace {

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kGroup = 8;
// Accumulators of rows 2i and 2i + 1 have the sums of both: those of two columns in the first one, of two more in the second.
template <int R>
inline constexpr int kSumRows = (R + 1) / 2 * 2;

// Between that order and rows, either way.
template <int R, int NV>
__attribute__((always_inline)) inline void exchange_halves(BitVec (&acc)[R][NV]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; r += 2) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const BitVec first = acc[r][v], second = acc[r + 1][v];
      acc[r][v] = __builtin_shufflevector(first, second, 0, 1, 4, 5);
      acc[r + 1][v] = __builtin_shufflevector(first, second, 2, 3, 6, 7);
    }
  }
}

inline void add_tile(uint8x16_t a, int8x16_t b, BitVec& sum) {
  sum = reinterpret_cast<BitVec>(vusmmlaq_s32(reinterpret_cast<int32x4_t>(sum), a, b));
}

template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block,
                                                          BitVec (&acc)[kSumRows<R>][NV]) {
  int8x16_t low[NV], high[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) {
    low[v] = vld1q_s8(b + v * block);
    high[v] = vld1q_s8(b + v * block + 16);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r += 2) {
    const int other = r + 1 < R ? r + 1 : r;  // the sums of a row that is not there are not stored
    const uint8x16_t x = vcombine_u8(vld1_u8(rows[r] + at), vld1_u8(rows[other] + at));
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      add_tile(x, low[v], acc[r][v]);
      add_tile(x, high[v], acc[r + 1][v]);
    }
  }
}
#else
#define EVN_DOT_LANES 1  // there is multiply_four
constexpr int kGroup = 4;
template <int R>
inline constexpr int kSumRows = R;
template <int R, int NV>
inline void exchange_halves(BitVec (&)[R][NV]) {}

// sdot wants A as int8: 128 less, which is simd_qgemm::Loops::a_offset.
inline int8x16_t less_offset(uint8x16_t a) { return vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(0x80))); }

template <int Lane>
inline void add_dots(int8x16_t a, int8x16_t b, BitVec& sum) {
  sum = reinterpret_cast<BitVec>(vdotq_laneq_s32(reinterpret_cast<int32x4_t>(sum), b, a, Lane));
}

template <int Lane, int R, int NV>
__attribute__((always_inline)) inline void multiply_lane(const int8x16_t (&x)[R], const std::int8_t* b, std::int64_t block,
                                                         BitVec (&acc)[R][NV]) {
  int8x16_t bv[NV];
#pragma GCC unroll 4
  for (int v = 0; v < NV; ++v) bv[v] = vld1q_s8(b + v * block + Lane * 16);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) add_dots<Lane>(x[r], bv[v], acc[r][v]);
  }
}

// Four groups of each row, which one vector of it has.
template <int R, int NV>
__attribute__((always_inline)) inline void multiply_four(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                         const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  int8x16_t x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = less_offset(vld1q_u8(rows[r] + at));
  multiply_lane<0>(x, b, block, acc);
  multiply_lane<1>(x, b, block, acc);
  multiply_lane<2>(x, b, block, acc);
  multiply_lane<3>(x, b, block, acc);
}

template <int R, int NV>
__attribute__((always_inline)) inline void multiply_group(const std::uint8_t* const (&rows)[R], std::int64_t at,
                                                          const std::int8_t* b, std::int64_t block, BitVec (&acc)[R][NV]) {
  int8x16_t x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    std::uint32_t bits;
    std::memcpy(&bits, rows[r] + at, sizeof bits);
    x[r] = less_offset(vreinterpretq_u8_u32(vdupq_n_u32(bits)));
  }
  multiply_lane<0>(x, b, block, acc);
}
#endif

}  // namespace
}  // namespace evn::EVN_ISA
