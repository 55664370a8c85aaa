// The loops of conv_gradient/implicit_gemm_loops.h by vdpbf16ps: an element of A, of B and of planes is a word of two bfloat16,
// whose products are both added. Sums are float32.
#include "backends/cpu/conv_gradient/implicit_gemm_loops.h"
#include "backends/cpu/simd/lanes.h"

namespace evn::EVN_ISA {
namespace {

using simd_implicit_gemm::Cut;
using simd_implicit_gemm::Product;
using simd_implicit_gemm::WordPanel;

constexpr int kVectors = 4;
constexpr std::int64_t kKc = 256;  // rows of a panel of B that stay in L2

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

struct Micro {
  const float* x;
  const std::int64_t* rows;
  const std::int64_t* ks;
  const float* b;
  std::int64_t k;
  float* c;
  std::int64_t ldc;
  bool add;
};

template <int R, int NV>
void micro(const Micro& g) {
  Vec acc[R][NV];
  const float* row[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    row[r] = g.x + g.rows[r];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[r][v] = g.add ? load(g.c + r * g.ldc + v * kLanes) : zero();
  }
  const float* b = g.b;
  const std::int64_t* const end = g.ks + g.k;
  for (const std::int64_t* ks = g.ks; ks != end; ++ks, b += NV * kLanes) {
    const std::int64_t at = *ks;
    Vec bv[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec a = splat(row[r][at]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) add_products(a, bv[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) store(g.c + r * g.ldc + v * kLanes, acc[r][v]);
  }
}

using MicroFn = void (*)(const Micro&);
struct MicroKernel {
  int rows;
  MicroFn run;
};
constexpr MicroKernel kMicros[kVectors] = {{8, micro<8, 1>}, {8, micro<8, 2>}, {8, micro<8, 3>}, {6, micro<6, 4>}};

void run(const Product& p) {
  std::int64_t k0 = 0;
  do {
    const std::int64_t kc = p.k - k0 < kKc ? p.k - k0 : kKc;
    simd_implicit_gemm::for_each_panel(kLanes, kVectors, p.n, [&](std::int64_t column, std::int64_t columns) {
      const std::int64_t vectors = (columns + kLanes - 1) / kLanes;
      const MicroKernel& kernel = kMicros[vectors - 1];
      for (std::int64_t r = 0; r < p.m; r += kernel.rows) {
        if (stops(p.points, kernel.rows * vectors * kLanes * kc)) return;
        kernel.run({p.x, p.rows + r, p.ks + k0, p.b + column * p.k + k0 * vectors * kLanes, kc, p.c + r * p.ldc + column, p.ldc,
                    p.add || k0 > 0});
      }
    });
    k0 += kc;
  } while (k0 < p.k && !has_stopped(p.points));
}

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
