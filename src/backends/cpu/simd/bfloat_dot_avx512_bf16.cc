// The loops of simd/bfloat_dot.h by vdpbf16ps, where there are no tiles: rows of A by vectors of columns, a pair of k at a time.
#include <cstring>

#include "backends/cpu/simd/bfloat_dot_tile.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kMostRows = 6, kBlocks = 2;
constexpr std::int64_t kPair = 2;

typedef std::uint32_t Pairs __attribute__((vector_size(64)));
typedef std::uint32_t UnalignedPairs __attribute__((vector_size(64), aligned(4), may_alias));

// In the sum's own register: the compiler may otherwise copy sums around.
inline void add_dot(Pairs a, Pairs b, Vec& sum) { __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

inline Pairs pair_of(const std::uint16_t* p) {
  std::uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits - Pairs{};
}

template <int R, int NV>
void multiply(const Tile& t, const std::uint16_t* a, const std::uint16_t* b, float* sums) {
  const std::int64_t block = t.segments * t.padded * kLanes;
  Vec acc[R][NV] = {};
  for (std::int64_t s = 0; s < t.segments; ++s) {
    const std::uint16_t* rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = a + r * t.lda + t.offsets[s];
    for (std::int64_t k = 0; k < t.padded; k += kPair, b += kPair * kLanes) {
      Pairs bv[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) bv[v] = *reinterpret_cast<const UnalignedPairs*>(b + v * block);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Pairs x = pair_of(rows[r] + k);
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) add_dot(x, bv[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(sums + r * kSumColumns + v * kLanes, acc[r][v]);
  }
}

using Multiply = void (*)(const Tile&, const std::uint16_t*, const std::uint16_t*, float*);
constexpr Multiply kMultiply[kMostRows][kBlocks] = {
    {multiply<1, 1>, multiply<1, 2>}, {multiply<2, 1>, multiply<2, 2>}, {multiply<3, 1>, multiply<3, 2>},
    {multiply<4, 1>, multiply<4, 2>}, {multiply<5, 1>, multiply<5, 2>}, {multiply<6, 1>, multiply<6, 2>},
};

void run(const Tile& t) {
  alignas(64) float sums[kMostRows * kSumColumns];
  const std::int64_t block = t.segments * t.padded * kLanes;
  const std::int64_t pieces = (t.width + kMostRows - 1) / kMostRows;
  const Chain chain = split_chain(t.epilogue);
  for (std::int64_t column = 0; column < t.n; column += kSumColumns) {
    const std::int64_t columns = t.n - column < kSumColumns ? t.n - column : kSumColumns;
    for (std::int64_t line = 0; line < t.lines; ++line) {
      std::int64_t x = 0;
      for (std::int64_t piece = pieces; piece > 0; --piece) {
        const std::int64_t rows = (t.width - x + piece - 1) / piece;
        kMultiply[rows - 1][columns > kLanes ? 1 : 0](t, t.a + line * t.line_step + x * t.lda, t.b + column / kLanes * block, sums);
        store_sums(t, chain, {sums, rows, line, x, column, columns});
        x += rows;
      }
    }
  }
}

}  // namespace

extern const simd_bfloat_dot::Loops loops_bfloat_dot;
const simd_bfloat_dot::Loops loops_bfloat_dot = {kLanes, 2, 1e6, run, convert, copy};

}  // namespace evn::EVN_ISA
