// The loops of gemm/gemm_loops.h for one cluster: a micro-kernel of R rows by NV vectors, and the blocking around it.
#include "backends/cpu/gemm/gemm_loops.h"

#include "backends/cpu/gemm/gemm_pack.h"
#include "backends/cpu/simd/epilogue.h"
#include "backends/cpu/simd/micro_tile.h"

namespace evn::EVN_ISA {
namespace {

using simd_gemm::AKind;
using simd_gemm::BKind;

// Register tiles: accumulators, one row of B and one broadcast fit the register file. kKc keeps a micro-panel of B in L1.
#if defined(__AVX512F__)
constexpr int kMr = 8, kNv = 3, kKc = 128;
#elif defined(__AVX2__)
constexpr int kMr = 4, kNv = 3, kKc = 192;
#elif defined(__aarch64__)
constexpr int kMr = 4, kNv = 4, kKc = 256;
#else
constexpr int kMr = 4, kNv = 2, kKc = 256;
#endif
constexpr int kNr = kNv * kLanes;

struct Micro : MicroTile {
  const float* a;
  std::int64_t row_step, k_step;  // of A
  const float* b;
  std::int64_t ldb;
  std::int64_t k;
};

template <int R, int NV>
void micro(const Micro& g) {
  Vec acc[R][NV];
  start<BiasOf::kRows, R, NV>(g, acc);
  const float* b = g.b;
  const float* a = g.a;
  const float* a4 = g.a + 4 * g.row_step;
  const std::int64_t step = g.row_step;
  const std::int64_t k_step = g.k_step;
  const std::int64_t ldb = g.ldb;
  for (std::int64_t k = 0; k < g.k; ++k) {
    Vec bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec x = splat(r < 4 ? a[r * step] : a4[(r - 4) * step]);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[r][v] = fma(x, bv[v], acc[r][v]);
    }
    b += ldb;
    a += k_step;
    a4 += k_step;
  }
  finish<false, R, NV>(g, acc);
}

using MicroFn = void (*)(const Micro&);
#define EVN_MICRO_ROW(R) \
  { micro<R, 1>, micro<R, 2>, micro<R, 3>, micro<R, kNv> }
constexpr MicroFn kMicros[kMr][4] = {
    EVN_MICRO_ROW(1), EVN_MICRO_ROW(2), EVN_MICRO_ROW(3), EVN_MICRO_ROW(4),
#if defined(__AVX512F__)
    EVN_MICRO_ROW(5), EVN_MICRO_ROW(6), EVN_MICRO_ROW(7), EVN_MICRO_ROW(8),
#endif
};

// A narrow part of C, up to kNarrow columns: vectors run over the rows of packed A, four panels at a time to hide the latency of
// the chains.
constexpr int kNarrow = 4;
typedef float RowVec __attribute__((vector_size(4 * kMr)));
typedef float UnalignedRowVec __attribute__((vector_size(4 * kMr), aligned(4), may_alias));

inline RowVec row_load(const float* p) { return *reinterpret_cast<const UnalignedRowVec*>(p); }
#if defined(__AVX512F__)
inline RowVec row_splat(float x) { return _mm256_set1_ps(x); }
inline RowVec row_fma(RowVec a, RowVec b, RowVec c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__AVX2__)
inline RowVec row_splat(float x) { return _mm_set1_ps(x); }
inline RowVec row_fma(RowVec a, RowVec b, RowVec c) { return _mm_fmadd_ps(a, b, c); }
#else
inline RowVec row_splat(float x) { return splat(x); }
inline RowVec row_fma(RowVec a, RowVec b, RowVec c) { return fma(a, b, c); }
#endif

// What the sums of `panels` panels by n columns begin with: `sums` has kMr rows of a column side by side. Not inlined, and with
// loops that stay loops: one copy serves all numbers of panels and columns.
__attribute__((noinline)) void load_narrow(const Tile& t, const Micro& g, std::int64_t row, int panels, int n, float* sums) {
#pragma GCC unroll 1
  for (std::int64_t m = row; m < row + panels * kMr; ++m) {
#pragma GCC unroll 1
    for (int j = 0; j < n; ++j) {
      float x = 0;
      if (m < t.m) x = g.from_c ? g.c[m * g.ldc + j] : g.bias != nullptr ? g.bias[m * g.bias_step] : 0;
      sums[((m - row) / kMr * n + j) * kMr + (m - row) % kMr] = x;
    }
  }
}

__attribute__((noinline)) void store_narrow(const Tile& t, const Micro& g, std::int64_t row, int panels, int n, const float* sums) {
  const std::int64_t end = t.m - row < panels * kMr ? t.m : row + panels * kMr;
#pragma GCC unroll 1
  for (std::int64_t m = row; m < end; ++m) {
#pragma GCC unroll 1
    for (int j = 0; j < n; ++j) {
      float x = sums[((m - row) / kMr * n + j) * kMr + (m - row) % kMr];
      if (g.onto_c) x += g.c[m * g.ldc + j];
      if (g.bound) {
        x = g.low > x ? g.low : x;
        x = g.high < x ? g.high : x;
      }
      g.c[m * g.ldc + j] = x;
    }
  }
}

// Block [k0, k0 + g.k) of P panels from `row` on; g as for a micro-kernel of the rows from 0.
template <int P, int N>
void narrow_panels(const Tile& t, const Micro& g, std::int64_t k0, std::int64_t row) {
  const std::int64_t panel = t.k * kMr;
  const float* a = t.a + row / kMr * panel + k0 * kMr;
  alignas(64) float sums[P * N * kMr];
  load_narrow(t, g, row, P, N, sums);
  RowVec acc[P][N];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[p][j] = row_load(sums + (p * N + j) * kMr);
  }
  for (std::int64_t k = 0; k < g.k; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const RowVec x = row_load(a + p * panel + k * kMr);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[p][j] = row_fma(x, row_splat(g.b[k * g.ldb + j]), acc[p][j]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) *reinterpret_cast<UnalignedRowVec*>(sums + (p * N + j) * kMr) = acc[p][j];
  }
  store_narrow(t, g, row, P, N, sums);
}

template <int N>
void narrow(const Tile& t, const Micro& g, std::int64_t k0) {
  std::int64_t row = 0;
  for (; row + 3 * kMr < t.m; row += 4 * kMr) {
    if (stops(t.points, 4 * kMr * N * g.k)) return;
    narrow_panels<4, N>(t, g, k0, row);
  }
  for (; row < t.m; row += kMr) narrow_panels<1, N>(t, g, k0, row);
}

void run_narrow(const Tile& t, const Micro& g, std::int64_t k0, std::int64_t cols) {
  switch (cols) {
    case 1: narrow<1>(t, g, k0); break;
    case 2: narrow<2>(t, g, k0); break;
    case 3: narrow<3>(t, g, k0); break;
    default: narrow<4>(t, g, k0); break;
  }
}

// Where block k0 of the micro-panel at `column` lies; packs it when it must.
const float* block_of_b(const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, std::int64_t cols,
                        std::int64_t* ldb) {
  *ldb = kNr;
  switch (t.b_kind) {
    case BKind::kPacked: return t.b + column * t.k + k0 * kNr;
    case BKind::kRows:
      // Few rows would not earn the packing; vectors may be read in place only where they are whole.
      if ((t.m <= 2 * kMr && cols == kNr) || (cols <= kNarrow && t.a_kind == AKind::kPacked)) {
        *ldb = t.ldb;
        return t.b + k0 * t.ldb + column;
      }
      pack_rows(t.buffer, t.b + k0 * t.ldb + column, t.ldb, kc, cols, kNr);
      break;
    case BKind::kColumns: pack_columns(t.buffer, t.b + column * t.ldb + k0, t.ldb, kc, cols, kNr); break;
    case BKind::kPatches: pack_patches<kNr>(t.buffer, t, k0, kc, column, cols, kNr); break;
  }
  return t.buffer;
}

// Block k0 of a transposed A, as panels of kc rows.
void pack_a_columns(const Tile& t, std::int64_t k0, std::int64_t kc, float* to) {
  for (std::int64_t row = 0; row < t.m; row += kMr) {
    if (stops(t.points, kMr * kc)) return;
    const std::int64_t rows = t.m - row < kMr ? t.m - row : kMr;
    for (std::int64_t k = 0; k < kc; ++k) {
      const float* from = t.a + (k0 + k) * t.lda + row;
      for (std::int64_t r = 0; r < rows; ++r) to[row * kc + k * kMr + r] = from[r];
    }
  }
}

void run_column(const Tile& t, std::int64_t k0, std::int64_t kc, std::int64_t column, const float* a_block, Micro* g) {
  const std::int64_t cols = t.n - column < kNr ? t.n - column : kNr;
  const int nv = static_cast<int>((cols + kLanes - 1) / kLanes);
  g->last_lanes = cols - (nv - 1) * kLanes;
  g->b = block_of_b(t, k0, kc, column, cols, &g->ldb);
  g->c = t.c + column;
  g->bias = g->onto_c ? nullptr : t.init;
  if (cols <= kNarrow && t.a_kind == AKind::kPacked) return run_narrow(t, *g, k0, cols);
  for (std::int64_t row = 0; row < t.m; row += kMr) {
    const std::int64_t rows = t.m - row < kMr ? t.m - row : kMr;
    if (stops(t.points, rows * nv * kLanes * kc)) return;
    switch (t.a_kind) {
      case AKind::kPacked: g->a = t.a + row * t.k + k0 * kMr; break;
      case AKind::kRows: g->a = t.a + row * t.lda + k0; break;
      case AKind::kColumns: g->a = a_block + row * kc; break;
    }
    g->c = t.c + row * t.ldc + column;
    g->bias = t.init == nullptr || g->onto_c ? nullptr : t.init + row * t.init_row;
    kMicros[rows - 1][nv - 1](*g);
  }
}

void run(const Tile& t) {
  const Chain chain = split_chain(t.epilogue);
  float* a_block = t.buffer + (kKc + 2) * kNr;
  Micro g{};
  g.row_step = t.a_kind == AKind::kRows ? t.lda : 1;
  g.k_step = t.a_kind == AKind::kRows ? 1 : kMr;
  g.ldc = t.ldc;
  g.bias_step = t.init_row;
  const bool by_c = t.init != nullptr && (t.init_column != 0 || t.init_scale != 1);
  for (std::int64_t row = 0; by_c && row < t.m; ++row) {
    if (stops(t.points, t.n)) return;
    write_start(t, row, 1);
  }
  g.low = chain.low;
  g.high = chain.high;
  std::int64_t k0 = 0;
  do {
    const std::int64_t kc = t.k - k0 < kKc ? t.k - k0 : kKc;
    const bool last = k0 + kc == t.k;
    g.k = kc;
    g.from_c = by_c && k0 == 0;
    g.onto_c = k0 > 0;
    g.bound = last && (chain.low > -__builtin_inff() || chain.high < __builtin_inff());
    if (t.a_kind == AKind::kColumns) pack_a_columns(t, k0, kc, a_block);
    for (std::int64_t column = 0; column < t.n; column += kNr) {
      run_column(t, k0, kc, column, a_block, &g);
      if (has_stopped(t.points)) return;
      if (last && chain.rest_count > 0) {
        const std::int64_t cols = t.n - column < kNr ? t.n - column : kNr;
        apply_rest(chain, t.c + column, t.m, t.ldc, cols, t.points);
      }
    }
    k0 += kc;
  } while (k0 < t.k);
}

}  // namespace

extern const simd_gemm::Loops loops_gemm;
const simd_gemm::Loops loops_gemm = {.mr = kMr, .nr = kNr, .kc = kKc, .run = run};

}  // namespace evn::EVN_ISA
