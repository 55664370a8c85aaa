// The loops of bfloat/bfloat_gemm_loops.h for float16, by its multiply-adds: rows of A by vectors of columns. These sum parts of k,
// each rounded to float16 by each of its terms, which are summed as float32.
#include "backends/cpu/bfloat/bfloat_gemm_tile.h"

namespace evn::EVN_ISA {
namespace {

constexpr int kBlocks = 2;
constexpr std::int64_t kColumns = 32;   // of a vector
constexpr std::int64_t kPart = 32;      // of k
constexpr std::int64_t kPartsNear = 6;  // whose B stays in the first-level cache while a group of rows passes by
constexpr std::int64_t kGroupRows = 48;

// Parts of k: where they begin, in A and in B.
struct Parts {
  std::int64_t segment, at, b;

  std::int64_t size(const Tile& t) const { return t.padded - at < kPart ? t.padded - at : kPart; }
  bool is_first() const { return segment == 0 && at == 0; }
  void next(const Tile& t) {
    const std::int64_t n = size(t);
    b += n * kColumns;
    at += n;
    if (at < t.padded) return;
    at = 0;
    ++segment;
  }
};

// Rows of a line that are multiplied together.
struct Rows {
  const std::uint16_t* a;
  float* sums;  // of each block of columns, the rows
  std::int64_t count, line, x;
};

inline __m512h splat_half(std::uint16_t bits) {
  return reinterpret_cast<__m512h>(_mm512_set1_epi16(static_cast<std::int16_t>(bits)));
}

// Adds R rows by two blocks of columns, `block` apart, of some parts of k to their sums; the first part of all begins them. 0: one,
// twice.
template <int R>
void multiply(const Tile& t, const Rows& g, const std::uint16_t* columns, std::int64_t block, Parts part, std::int64_t parts) {
  for (; parts > 0; --parts, part.next(t)) {
    const std::uint16_t* rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = g.a + r * t.lda + t.offsets[part.segment] + part.at;
    __m512h acc[R][kBlocks];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlocks; ++v) acc[r][v] = _mm512_setzero_ph();
    }
    const std::uint16_t* b = columns + part.b;
    const std::int64_t n = part.size(t);
    for (std::int64_t k = 0; k < n; ++k, b += kColumns) {
      __m512h bv[kBlocks];
#pragma GCC unroll 2
      for (int v = 0; v < kBlocks; ++v) bv[v] = _mm512_loadu_ph(b + v * block);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        // A register of its own: an operand that is broadcast from memory takes more than twice the time.
        __m512h x = splat_half(rows[r][k]);
        __asm__("" : "+v"(x));
#pragma GCC unroll 2
        for (int v = 0; v < kBlocks; ++v) acc[r][v] = _mm512_fmadd_ph(x, bv[v], acc[r][v]);
      }
    }
    const bool first = part.is_first();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kBlocks; ++v) {
        const __m512i halves = reinterpret_cast<__m512i>(acc[r][v]);
        float* const to = g.sums + (v * R + r) * kSumColumns;
        const Vec low = widened(__builtin_shufflevector(halves, halves, 0, 1, 2, 3));
        const Vec high = widened(__builtin_shufflevector(halves, halves, 4, 5, 6, 7));
        store(to, first ? low : load(to) + low);
        store(to + kLanes, first ? high : load(to + kLanes) + high);
      }
    }
  }
}

using Multiply = void (*)(const Tile&, const Rows&, const std::uint16_t*, std::int64_t, Parts, std::int64_t);
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<4>, multiply<8>};

int log_rows(std::int64_t left) { return left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0; }

void run(const Tile& t) {
  static_assert(kColumns == kSumColumns);
  alignas(64) float sums[kGroupRows * kBlocks * kColumns];
  Rows group[kGroupRows];
  const std::int64_t block = t.segments * t.padded * kColumns;
  const std::int64_t parts = t.segments * ((t.padded + kPart - 1) / kPart);
  const Chain chain = split_chain(t.epilogue);
  for (std::int64_t column = 0; column < t.n; column += kBlocks * kColumns) {
    const std::int64_t blocks = t.n - column > kColumns ? 2 : 1;
    const std::uint16_t* const columns = t.b + column / kColumns * block;
    for (std::int64_t line = 0, x = 0; line < t.lines;) {
      std::int64_t count = 0;
      for (std::int64_t rows = 0; line < t.lines;) {
        const std::int64_t n = std::int64_t{1} << log_rows(t.width - x);
        if (rows + n > kGroupRows) break;
        group[count++] = {t.a + line * t.line_step + x * t.lda, sums + rows * kBlocks * kColumns, n, line, x};
        rows += n;
        x += n;
        if (x == t.width) {
          x = 0;
          ++line;
        }
      }
      Parts part{0, 0, 0};
      for (std::int64_t done = 0; done < parts; done += kPartsNear) {
        const std::int64_t some = parts - done < kPartsNear ? parts - done : kPartsNear;
        for (std::int64_t i = 0; i < count; ++i) {
          if (stops(t.points, group[i].count * kBlocks * kColumns * some * kPart / kPairsPerUnit)) return;
          kMultiply[log_rows(group[i].count)](t, group[i], columns, blocks == 2 ? block : 0, part, some);
        }
        for (std::int64_t i = 0; i < some; ++i) part.next(t);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t v = 0; v < blocks; ++v) {
          const std::int64_t at = column + v * kColumns, n = t.n - at < kColumns ? t.n - at : kColumns;
          const Rows& g = group[i];
          store_sums(t, chain, {g.sums + v * g.count * kSumColumns, g.count, g.line, g.x, at, n});
        }
      }
    }
  }
}

}  // namespace

extern const simd_bfloat_gemm::Loops loops_bfloat_gemm;
const simd_bfloat_gemm::Loops loops_bfloat_gemm = {
    .lanes = kColumns, .k_step = 1, .tile_cost = 1e6, .run = run, .convert = convert, .copy = copy, .unit = 1, .is_float16 = true};

}  // namespace evn::EVN_ISA
