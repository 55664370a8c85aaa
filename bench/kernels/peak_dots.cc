// Products of bytes and of bfloat16 that stay in registers, in the instructions of one set (EVN_ISA).
#include "peak_dots.h"

#include "backends/cpu/simd/vec.h"

namespace evn::EVN_ISA {
namespace {

#if defined(__AMX_INT8__)

constexpr std::int64_t kTilesPerRound = 4;
constexpr std::int64_t kRows = 16, kColumns = 16, kRowBytes = 64;

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Tiles 0 to 3 are sums, 4 and 5 of A, 6 and 7 of B; loading the configuration sets all to zero.
#define EVN_TILE_LOOP(instruction)                                                                                   \
  const TileConfig config;                                                                                           \
  __asm__ volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");                                                      \
  for (std::int64_t r = 0; r < rounds; ++r) {                                                                        \
    __asm__ volatile(instruction " %%tmm6, %%tmm4, %%tmm0\n\t" instruction " %%tmm7, %%tmm4, %%tmm1\n\t" instruction \
                                 " %%tmm6, %%tmm5, %%tmm2\n\t" instruction " %%tmm7, %%tmm5, %%tmm3" ::);            \
  }                                                                                                                  \
  __asm__ volatile("tilerelease" ::: "memory")

void int8(std::int64_t rounds) { EVN_TILE_LOOP("tdpbusd"); }
void bf16(std::int64_t rounds) { EVN_TILE_LOOP("tdpbf16ps"); }

constexpr std::int64_t kInt8 = kTilesPerRound * kRows * kColumns * kRowBytes * 2;
constexpr std::int64_t kBf16 = kInt8 / 2;

#else

constexpr int kChains = kLanes == 16 ? 24 : 12;  // as many as the registers hold

template <typename Add>
inline void loop(std::int64_t rounds, Add add) {
  IntVec sums[kChains], a = {}, b = {};
  __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = a;
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) add(a, b, sums[i]);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) __asm__ volatile("" ::"v"(sums[i]));
}

void int8(std::int64_t rounds) {
  loop(rounds, [](const IntVec& a, const IntVec& b, IntVec& sum) {
#if defined(__AVX512VNNI__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#elif defined(__AVXVNNI__)
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#else
    // The fastest way without vpdpbusd, though sums of two products saturate at 16 bits: three instructions for four products.
    IntVec products;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(a), "v"(b));
#endif
  });
}

constexpr std::int64_t kInt8 = kChains * kLanes * 4 * 2;

#if defined(__AVX512BF16__)
void bf16(std::int64_t rounds) {
  loop(rounds, [](const IntVec& a, const IntVec& b, IntVec& sum) { __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); });
}
constexpr std::int64_t kBf16 = kChains * kLanes * 2 * 2;
#else
constexpr void (*bf16)(std::int64_t) = nullptr;
constexpr std::int64_t kBf16 = 0;
#endif

#endif

}  // namespace

const PeakDots peak_dots = {kInt8, int8, kBf16, bf16};

}  // namespace evn::EVN_ISA
