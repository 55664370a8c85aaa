// The loops of bfloat/bfloat_gemm_loops.h by vdpbf16ps, where there are no tiles: rows of A by vectors of columns, a pair of k at a
// time. Those that pack what a run computes serve the tiles too, as a CPU that has tiles has these instructions.
#include <cstring>

#include "backends/cpu/bfloat/bfloat_gemm_tile.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kMostRows = 4, kBlocks = 2;
constexpr std::int64_t kPair = 2;

typedef std::uint32_t Pairs __attribute__((vector_size(64)));
typedef std::uint32_t UnalignedPairs __attribute__((vector_size(64), aligned(4), may_alias));

// In the sum's own register: the compiler may otherwise copy sums around.
inline void add_qgemm(Pairs a, Pairs b, Vec& sum) { __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

inline Pairs pair_of(const std::uint16_t* p) {
  std::uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits - Pairs{};
}

// Products of kMostRows rows, of which those from `count` on are the last one again, by two blocks of columns `block` apart; 0:
// one, twice.
void multiply(const Tile& t, const std::uint16_t* a, std::int64_t count, const std::uint16_t* b, std::int64_t block, float* sums) {
  Vec acc[kMostRows][kBlocks] = {};
  for (std::int64_t s = 0; s < t.segments; ++s) {
    const std::uint16_t* rows[kMostRows];
    for (std::int64_t r = 0; r < kMostRows; ++r) rows[r] = a + (r < count ? r : count - 1) * t.lda + t.offsets[s];
    for (std::int64_t k = 0; k < t.padded; k += kPair, b += kPair * kLanes) {
      const Pairs b0 = *reinterpret_cast<const UnalignedPairs*>(b), b1 = *reinterpret_cast<const UnalignedPairs*>(b + block);
#pragma GCC unroll 8
      for (int r = 0; r < kMostRows; ++r) {
        const Pairs x = pair_of(rows[r] + k);
        add_qgemm(x, b0, acc[r][0]);
        add_qgemm(x, b1, acc[r][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kMostRows; ++r) {
    store(sums + r * kSumColumns, acc[r][0]);
    store(sums + r * kSumColumns + kLanes, acc[r][1]);
  }
}

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
        if (stops(t.points, kMostRows * kSumColumns * t.segments * t.padded / kPairsPerUnit)) return;
        multiply(t, t.a + line * t.line_step + x * t.lda, rows, t.b + column / kLanes * block, columns > kLanes ? block : 0, sums);
        store_sums(t, chain, {sums, rows, line, x, column, columns});
        x += rows;
      }
    }
  }
}

// 16 columns by 32 of k are a square of pairs.
void pack_columns(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded, std::uint16_t* to,
                  CancelPoints* points) {
  constexpr std::int64_t kSquare = 2 * kLanes;
  for (std::int64_t column = 0; column < n; column += kLanes, to += padded * kLanes) {
    for (std::int64_t at = 0; at < padded; at += kSquare) {
      if (stops(points, kLanes * kSquare)) return;
      Vec v[kLanes];
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const float* const p = from + (column + i) * step + at;
        const std::int64_t left = column + i < n ? k - at : 0;
        const Vec low = left >= kLanes ? load(p) : left > 0 ? load_n(p, left) : zero();
        const Vec high = left >= kSquare ? load(p + kLanes) : left > kLanes ? load_n(p + kLanes, left - kLanes) : zero();
        v[i] = reinterpret_cast<Vec>(narrowed(high, low));
      }
      transpose(v);
      const std::int64_t pairs = (padded - at < kSquare ? padded - at : kSquare) / 2;
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < pairs; ++i) _mm512_storeu_si512(to + (at + 2 * i) * kLanes, reinterpret_cast<__m512i>(v[i]));
    }
  }
}

void pack_rows(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded, std::uint16_t* to,
               CancelPoints* points) {
  typedef std::int16_t Halves __attribute__((vector_size(64)));
  const Halves in_turns = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  for (std::int64_t row = 0; row < padded; row += 2) {
    if (stops(points, 2 * n)) return;
    const float* const p = from + row * step;
    for (std::int64_t column = 0; column < n; column += kLanes) {
      const std::int64_t left = n - column < kLanes ? n - column : kLanes;
      const Vec low = row < k ? load_n(p + column, left) : zero();
      const Vec high = row + 1 < k ? load_n(p + step + column, left) : zero();
      const __m512i pairs = _mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(in_turns), narrowed(high, low));
      _mm512_storeu_si512(to + column * padded + row * kLanes, pairs);
    }
  }
}

}  // namespace

extern const simd_bfloat_gemm::Loops loops_bfloat_gemm;
const simd_bfloat_gemm::Loops loops_bfloat_gemm = {.lanes = kLanes,
                                                   .k_step = 2,
                                                   .tile_cost = 1e6,
                                                   .run = run,
                                                   .convert = convert,
                                                   .copy = copy,
                                                   .pack_columns = pack_columns,
                                                   .pack_rows = pack_rows};

}  // namespace evn::EVN_ISA
