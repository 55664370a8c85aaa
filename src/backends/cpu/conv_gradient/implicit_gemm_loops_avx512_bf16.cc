// The loops of conv_gradient/implicit_gemm_loops.h by vdpbf16ps: an element of A, of B and of planes is a word of two bfloat16,
// whose products are both added. Sums are float32.
#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"
#include "backends/cpu/conv_gradient/implicit_gemm_micro.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_implicit_gemm::Cut;
using simd_implicit_gemm::Product;
using simd_implicit_gemm::WordPanel;

constexpr int kVectors = 4;

typedef std::int16_t Halves __attribute__((vector_size(64)));

// In the sum's own register: the compiler may otherwise copy sums around.
inline void add_products(Vec a, Vec b, Vec& sum) { __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

// Words of the two, rounded to nearest even; `low` is first in memory.
inline Vec words_of(Vec low, Vec high) {
  constexpr Halves kInTurns = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  return reinterpret_cast<Vec>(_mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(kInTurns), halves));
}

struct WordMath {
  static void add(Vec a, Vec b, Vec& sum) { add_products(a, b, sum); }
};

template <int R, int NV>
constexpr MicroKernel kMicro = {R, micro<WordMath, R, NV>};

constexpr MicroKernel kMicros[kVectors] = {kMicro<8, 1>, kMicro<8, 2>, kMicro<8, 3>, kMicro<6, 4>};

void run(const Product& p) { run_panels(p, kMicros); }

inline void zero_words(float* to, std::int64_t n) {
  for (std::int64_t j = 0; j < n; j += kLanes) store(to + j, zero());
}

void cut_words(const Cut& c, const float* low, const float* high, float* to, CancelPoints* points) {
  std::int64_t left = c.column >= 0 ? 0 : -c.column;
  if (left > c.columns) left = c.columns;
  std::int64_t right = c.column >= c.width ? 0 : c.width - c.column;  // columns from there on are outside
  right = right > c.columns ? c.columns : right < left ? left : right;
  for (std::int64_t i = 0; i < c.rows; ++i, to += c.columns) {
    if (stops(points, c.columns + kLanes)) return;
    const std::int64_t row = c.row + i;
    if (row < 0 || row >= c.height) {
      zero_words(to, c.columns);
      continue;
    }
    zero_words(to, left);
    const std::int64_t from = row * c.width + c.column;
    for (std::int64_t j = left; j < right; j += kLanes) {
      const std::int64_t n = right - j < kLanes ? right - j : kLanes;
      const Vec lower = low == nullptr ? zero() : load_n(low + from + j, n);
      const Vec upper = high == nullptr ? zero() : load_n(high + from + j, n);
      store(to + j, words_of(lower, upper));
    }
    zero_words(to + right, c.columns - right);
  }
}

void turn_words(const WordPanel& p, float* to, CancelPoints* points) {
  for (std::int64_t row = 0; row < p.rows; row += kLanes) {
    const std::int64_t rows = p.rows - row < kLanes ? p.rows - row : kLanes;
    for (std::int64_t column = 0; column < p.columns; column += kLanes) {
      if (stops(points, kLanes * kLanes)) return;
      Vec v[kLanes];
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < kLanes; ++i) {
        const bool is_there = column + i < p.columns;
        const std::int64_t at = (column + i) * p.step + row;
        // Hardware does not follow so many columns.
        if (p.low != nullptr) __builtin_prefetch(p.low + at + 2 * kLanes);
        if (p.high != nullptr) __builtin_prefetch(p.high + at + 2 * kLanes);
        const Vec lower = is_there && p.low != nullptr ? load_n(p.low + at, rows) : zero();
        const Vec upper = is_there && p.high != nullptr ? load_n(p.high + at, rows) : zero();
        v[i] = words_of(lower, upper);
      }
      transpose(v);
#pragma GCC unroll 1
      for (std::int64_t i = 0; i < rows; ++i) store(to + (row + i) * p.width + column, v[i]);
    }
  }
}

}  // namespace

extern const simd_implicit_gemm::Loops loops_implicit_gemm;
const simd_implicit_gemm::Loops loops_implicit_gemm = {.lanes = kLanes,
                                                       .panel_vectors = kVectors,
                                                       .run = run,
                                                       .cut = nullptr,
                                                       .spread = nullptr,
                                                       .cut_words = cut_words,
                                                       .turn_words = turn_words};

}  // namespace evn::EVN_ISA
