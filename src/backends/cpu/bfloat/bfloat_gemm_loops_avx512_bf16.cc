// The loops of bfloat/bfloat_gemm_loops.h by vdpbf16ps, where there are no tiles: rows of A by vectors of columns, a pair of k at a
// time. Those that pack what a run computes serve the tiles too, as a CPU that has tiles has these instructions.
#include <cstring>

#include "backends/cpu/bfloat/bfloat_gemm_tile.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kMostRows = 6, kFewestRows = 4;  // of a micro-tile; of fewer the last one is computed several times
constexpr std::int64_t kRowsToStore = 24;      // whose sums are stored at once: what their columns need is loaded for all of them
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

struct Micro {
  const std::uint16_t* a;
  std::int64_t lda, rows;
  const std::int64_t* offsets;
  std::int64_t segments, padded;
  const std::uint16_t* b;
  std::int64_t block;  // from a vector of columns of B to the next
  float* sums;
  std::int64_t ld;
};

// Rows of A by V vectors of columns of B, over all of k.
template <int R, int V>
void multiply(const Micro& m) {
  Vec acc[R][V] = {};
  const std::uint16_t* b = m.b;
  const std::int64_t block = m.block;
  for (std::int64_t s = 0; s < m.segments; ++s) {
    const std::uint16_t* rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = m.a + (R != kFewestRows || r < m.rows ? r : m.rows - 1) * m.lda + m.offsets[s];
#pragma GCC unroll 2
    for (std::int64_t k = 0; k < m.padded; k += kPair, b += kPair * kLanes) {
      Pairs columns[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) columns[v] = *reinterpret_cast<const UnalignedPairs*>(b + v * block);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Pairs x = pair_of(rows[r] + k);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) add_qgemm(x, columns[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if (R == kFewestRows && r >= m.rows) return;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(m.sums + r * m.ld + v * kLanes, acc[r][v]);
  }
}

using MicroFn = void (*)(const Micro&);
// By rows beyond kFewestRows, for one, two and four vectors of columns; one row has eight, whose products wait for memory alone.
constexpr int kWidths[] = {1, 2, 4, 8};
constexpr int kWide = 2, kOneRow = 3;
constexpr MicroFn kMicros[][kMostRows - kFewestRows + 1] = {
    {multiply<4, 1>, multiply<5, 1>, multiply<6, 1>},
    {multiply<4, 2>, multiply<5, 2>, multiply<6, 2>},
    {multiply<4, 4>, multiply<5, 4>, multiply<6, 4>},
    {multiply<1, 8>},
};
constexpr std::int64_t kStoredFloats = kRowsToStore * 4 * kLanes;

void run(const Tile& t) {
  alignas(64) float sums[kStoredFloats];
  const std::int64_t depth = t.segments * t.padded, pieces = (t.width + kMostRows - 1) / kMostRows;
  const Chain chain = split_chain(t.epilogue);
  Micro micro = {.a = nullptr,
                 .lda = t.lda,
                 .rows = 0,
                 .offsets = t.offsets,
                 .segments = t.segments,
                 .padded = t.padded,
                 .b = nullptr,
                 .block = depth * kLanes,
                 .sums = sums,
                 .ld = 0};
  for (std::int64_t column = 0; column < t.n;) {
    const std::int64_t blocks = (t.n - column + kLanes - 1) / kLanes;
    int width = t.width == 1 ? kOneRow : kWide;
    while (kWidths[width] > blocks) --width;
    const std::int64_t most = kWidths[width] * kLanes, columns = t.n - column < most ? t.n - column : most;
    const std::int64_t ld = most < kSumColumns ? kSumColumns : most;
    micro.b = t.b + column * depth;
    for (std::int64_t line = 0; line < t.lines; ++line) {
      std::int64_t x = 0;
      for (std::int64_t piece = pieces; piece > 0;) {
        std::int64_t rows = 0;
        do {
          micro.rows = (t.width - x - rows + piece - 1) / piece;
          const std::int64_t computed = width == kOneRow ? 1 : micro.rows < kFewestRows ? kFewestRows : micro.rows;
          if (stops(t.points, computed * most * depth / kPairsPerUnit)) return;
          micro.a = t.a + line * t.line_step + (x + rows) * t.lda;
          if (t.whole) {
            micro.sums = static_cast<float*>(t.c) + (x + rows) * t.ldc + column;
            micro.ld = t.ldc;
          } else {
            micro.sums = sums + rows * ld;
            micro.ld = ld;
          }
          kMicros[width][width == kOneRow ? 0 : computed - kFewestRows](micro);
          rows += micro.rows;
        } while (--piece > 0 && rows + kMostRows <= kRowsToStore);
        if (!t.whole) store_sums(t, chain, {sums, rows, line, x, column, columns, ld});
        x += rows;
      }
    }
    column += most;
  }
}

// 16 columns by 32 of k are a square of pairs.
void pack_columns(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded, std::int64_t block,
                  std::uint16_t* to, CancelPoints* points) {
  constexpr std::int64_t kSquare = 2 * kLanes;
  for (std::int64_t column = 0; column < n; column += kLanes, to += block) {
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

// Pairs of k from two rows of `left` columns, which may be missing.
inline __m512i pairs_of(const float* p, std::int64_t step, std::int64_t rows, std::int64_t left) {
  typedef std::int16_t Halves __attribute__((vector_size(64)));
  constexpr Halves kInTurns = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const Vec low = rows > 0 ? load_n(p, left) : zero();
  const Vec high = rows > 1 ? load_n(p + step, left) : zero();
  return _mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(kInTurns), narrowed(high, low));
}

void pack_rows(const float* from, std::int64_t step, std::int64_t k, std::int64_t n, std::int64_t padded, std::int64_t block,
               std::uint16_t* to, CancelPoints* points) {
  for (std::int64_t row = 0; row < padded; row += 2) {
    if (stops(points, 2 * n)) return;
    const float* const p = from + row * step;
    for (std::int64_t column = 0; column < n; column += kLanes) {
      const std::int64_t left = n - column < kLanes ? n - column : kLanes;
      _mm512_storeu_si512(to + column / kLanes * block + row * kLanes, pairs_of(p + column, step, k - row, left));
    }
  }
}

void turn_rows(const float* from, std::int64_t step, std::int64_t k, std::int64_t rows, std::int64_t padded, std::int64_t ld,
               std::uint16_t* to, CancelPoints* points) {
  constexpr std::int64_t kSquare = 2 * kLanes;
  for (std::int64_t at = 0; at < padded; at += kSquare) {
    const __mmask32 mask = pairs_mask(padded - at);
    for (std::int64_t row = 0; row < rows; row += kLanes) {
      if (stops(points, kLanes * kSquare)) return;
      const std::int64_t left = rows - row < kLanes ? rows - row : kLanes;
      Vec v[kLanes];
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const float* const p = from + (at + 2 * i) * step + row;
        __builtin_prefetch(p + kSquare);  // hardware does not follow so many rows
        __builtin_prefetch(p + step + kSquare);
        v[i] = reinterpret_cast<Vec>(pairs_of(p, step, k - at - 2 * i, left));
      }
      transpose(v);
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < left; ++i)
        _mm512_mask_storeu_epi16(to + (row + i) * ld + at, mask, reinterpret_cast<__m512i>(v[i]));
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
                                                   .pack_rows = pack_rows,
                                                   .turn_rows = turn_rows};

}  // namespace evn::EVN_ISA
